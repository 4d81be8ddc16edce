"""Drawings of what has a shape: cores, racks, exchanges and mappings as SVG, generated from the data of a system."""

from trnbook.drawings.svg import Drawing

__all__ = ["Drawing"]
