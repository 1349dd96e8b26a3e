"""Two ways to compute a cohort's local work, loop and stacked, with equal results; threads and ranks."""
