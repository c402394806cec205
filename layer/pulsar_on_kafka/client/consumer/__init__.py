"""Consumers: one topic, several topics, patterns, retry and dead letters."""
