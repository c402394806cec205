"""Requests between processes with consumers of one subscription, in the state topic `deliveries`."""
