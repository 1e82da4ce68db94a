"""Agents as tools of an agent."""
