"""A run's directory: layout, status, writing, and one reader of runs from any source. Needs no torch."""
