"""Agents: their declarations, plans, chat models and the turn loop."""
