"""A tool set that gives each customer other tools."""
