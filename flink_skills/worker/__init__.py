"""The worker process: frames, turn scheduling, session cache."""
