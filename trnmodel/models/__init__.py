"""A model's configuration, what its layers are made of, and its account of work."""
