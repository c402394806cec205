"""Housekeeping: what dead processes left in the state topics, and what Kafka would forget."""
