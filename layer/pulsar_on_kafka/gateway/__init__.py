"""Serves Pulsar's binary protocol on topics of Kafka."""
