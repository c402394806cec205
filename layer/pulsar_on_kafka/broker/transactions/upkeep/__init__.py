"""Upkeep of transactions: markers that are due, and records that are no longer needed."""
