"""The open agent of a worker: opened from a plan, refreshed, and closed with its models, tools and skills."""
