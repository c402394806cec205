"""Transactions: atomic writes to many partitions and acknowledgements on many subscriptions."""
