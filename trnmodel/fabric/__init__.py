"""The network of a system: its graph, its flows, and its collectives."""
