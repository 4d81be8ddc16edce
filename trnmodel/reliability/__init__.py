"""Goodput: the useful share of a job's time under failures, spares and checkpoints."""
