"""Deduplication by producer name and sequence id: what is known of a producer's ids, and how it survives a crash."""
