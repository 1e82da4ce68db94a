"""An agent whose report can be read while the model still writes it."""
