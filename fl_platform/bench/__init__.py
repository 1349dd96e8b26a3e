"""What the platform costs, as ratios within one run: `python -m fl_platform bench`."""
