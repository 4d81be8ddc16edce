"""Questions and answers that lie in files: a scenario, a saved plan, and what has moved since it was saved."""
