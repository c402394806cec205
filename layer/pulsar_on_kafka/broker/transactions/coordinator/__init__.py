"""The coordinator of transactions: states and transitions. No I/O, no threads."""
