"""Tools that come and go with skills: twelve functions of a web shop, of which a model sees only what it needs."""
