"""Many questions at once: sweeps."""
