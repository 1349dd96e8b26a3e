"""Data sets: finding, fetching and reading them; partitions; batches and augmentation on the device."""
