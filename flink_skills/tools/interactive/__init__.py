"""Processes that live longer than one call: started, read, written to and ended by a model."""
