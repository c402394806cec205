"""Subscriptions on record: their names, types and seats."""
