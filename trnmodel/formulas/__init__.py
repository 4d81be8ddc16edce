"""A page of equations each, NumPy only; no page knows a spec or another page."""
