"""Confluent's REST API of schemas, for reading."""
