"""A training step: micro-batches through stages, what waits, and what is stored."""
