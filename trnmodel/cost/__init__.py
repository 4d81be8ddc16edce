"""Dollars: what an hour of a chip costs its owner, from counted parts and their prices."""
