"""Stored messages, read without a subscription: entries of a partition, and messages that wait for delivery."""
