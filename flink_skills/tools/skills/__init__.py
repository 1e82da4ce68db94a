"""Tools with which models list, load and read skills, and select their documents and tools."""
