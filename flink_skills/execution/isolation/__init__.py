"""Which isolation commands really have: levels, the canaries that prove them, the choice of a backend."""
