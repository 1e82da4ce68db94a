"""Commands that print skills, and what models see of them."""
