"""Fixtures, waiting, models and directories that tests of all packages share."""
