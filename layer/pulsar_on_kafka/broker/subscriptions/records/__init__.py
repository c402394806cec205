"""Records of a subscription on their way to a message: batches, chunks, compaction, read-committed."""
