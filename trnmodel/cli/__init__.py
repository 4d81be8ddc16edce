"""The questions at the terminal; the commands of other packages are found by their entry points."""
