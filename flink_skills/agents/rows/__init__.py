"""Records of rows: columns, types, and the events that are made from them."""
