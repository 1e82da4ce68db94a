"""Answers of a declared type from an agent that works with skills."""
