"""Tools that come and go with skills: those of a job's pool, and those that a skill brings itself."""
