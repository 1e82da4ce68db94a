"""Rules about prose: docstrings, comments, messages, Markdown, names of tests and subjects of commits."""
