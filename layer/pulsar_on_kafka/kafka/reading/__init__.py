"""Readers of Kafka's partitions: assigned ones, ranges, and several topics side by side."""
