"""What a model does with skills: list, load, read, select."""
