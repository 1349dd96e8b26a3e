"""The GradMA paper as data: methods, the fourteen columns, printed tables, sweeps. Needs no torch."""
