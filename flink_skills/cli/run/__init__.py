"""Commands that run jobs, agents, commands and tools."""
