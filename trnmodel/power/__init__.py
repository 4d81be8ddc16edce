"""Watts and joules of a step, of a server and of a site."""
