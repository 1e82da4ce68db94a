"""Jobs without code: a YAML file that says what comes in, which agent works, and where it goes."""
