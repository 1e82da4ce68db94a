"""Turns while they run, in the forms that user interfaces and other agents know."""
