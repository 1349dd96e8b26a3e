"""W1 and W2 beside other programs for federated simulation, each in an environment of its own."""
