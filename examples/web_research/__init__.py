"""An agent that searches the web, reads what it finds, and names its sources."""
