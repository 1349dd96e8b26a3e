"""The rules by which training samples are divided among workers (``data.partition``)."""
