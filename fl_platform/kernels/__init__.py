"""Code written for speed, each beside the plain operation it replaces and with equal results."""
