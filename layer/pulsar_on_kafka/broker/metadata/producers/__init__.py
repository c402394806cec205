"""Producers on record: their names, access modes, fences and heartbeats."""
