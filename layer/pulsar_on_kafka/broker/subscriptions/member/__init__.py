"""The member's thread: it owns partitions, fetches, saves and serves."""
