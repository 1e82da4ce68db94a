"""Functions as tools: methods, callable objects, functions of a registry, and what they get and give."""
