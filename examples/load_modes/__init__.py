"""How long a loaded skill stays in the requests to a model, and where its content stands in them."""
