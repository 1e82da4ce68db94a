"""A support desk that asks an expert: two agents in one turn, each with skills and a prompt of its own."""
