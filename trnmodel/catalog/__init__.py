"""Facts from `data/` as checked, frozen specs."""
