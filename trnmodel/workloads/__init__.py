"""What a model asks of a machine: operators, mappings, inference."""
