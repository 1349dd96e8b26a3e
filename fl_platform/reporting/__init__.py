"""Tables, curves and figures from runs. Needs no torch."""
