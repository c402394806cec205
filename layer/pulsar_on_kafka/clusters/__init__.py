"""Tenants on several Kafka clusters: their migration, and the service that says where they are."""
