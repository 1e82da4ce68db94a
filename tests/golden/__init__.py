"""Savepoints of releases, which every later version restores."""
