"""An agent that reads, searches, edits and runs files in the workspace of its key."""
