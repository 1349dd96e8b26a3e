"""What a run records about itself, and sends to Weights & Biases."""
