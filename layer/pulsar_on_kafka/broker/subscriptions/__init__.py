"""Subscriptions: one member per process, its partitions, and the consumers attached to it."""
