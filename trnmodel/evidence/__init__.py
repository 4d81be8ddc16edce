"""Numbers that are not ours: what each asks, what the model answers, and the verdict."""
