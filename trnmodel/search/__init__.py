"""Searches over mappings, batches, precisions and systems, and what is read off them."""
