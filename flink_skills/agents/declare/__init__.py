"""Declarations of a user: agents, their context, decorators, resources, answers and agents as tools."""
