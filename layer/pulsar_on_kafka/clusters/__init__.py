"""Tenants on several Kafka clusters: their migration, and the service that returns their clusters."""
