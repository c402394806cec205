"""Transactions' values say how each transaction stands, and what it wrote and acknowledged."""
