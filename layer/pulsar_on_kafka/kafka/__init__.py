"""Thin adapters over confluent-kafka: the only package that knows librdkafka."""
