"""Runs and sweeps, live, in a browser."""
