"""One run: the federated round, the LightningModule, worker pool, faults, checkpoints, launch."""
