"""The lab: fits constants, measures errors and writes rows of `data/`."""
