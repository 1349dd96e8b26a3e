"""A program per peer; each runs in the peer's environment and imports nothing of this package but its neighbours."""
