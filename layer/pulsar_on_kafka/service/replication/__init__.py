"""Replication of topics to other clusters."""
