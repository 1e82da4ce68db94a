"""A skill whose script asks questions and shows a menu, and one that runs until it is stopped."""
