"""Pulsar's wire format: what its clients send of a message, as bytes and as Kafka records."""
