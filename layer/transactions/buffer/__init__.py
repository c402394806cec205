"""What a partition of a data topic knows of transactions, and what of it may be read."""
