"""Upkeep of transactions: markers that are due, and records that nobody needs any more."""
