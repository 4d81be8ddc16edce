"""Studies: functions that return tidy tables."""
