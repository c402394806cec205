"""Spark's Kafka source reads the planned records, and SQL turns them into rows of messages."""
