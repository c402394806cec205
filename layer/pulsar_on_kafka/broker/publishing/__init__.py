"""Sending: admission of producers, and the way of a message to its record."""
