"""Cursors' values: acknowledgements of a subscription, requests to its owner, and leases."""
