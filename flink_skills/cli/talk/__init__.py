"""Interactive sessions and questions in a terminal."""
