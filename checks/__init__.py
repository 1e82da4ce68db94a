"""Checks of the project itself, for ``make lint``."""
