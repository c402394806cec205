"""Replication of subscriptions between clusters."""
