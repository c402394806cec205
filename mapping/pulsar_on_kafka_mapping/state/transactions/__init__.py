"""Transactions' values: the state of each transaction, its writes and its acknowledgements."""
