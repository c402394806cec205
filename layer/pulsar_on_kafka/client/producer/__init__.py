"""Producers: routing, batching, chunking, deduplication, and their opening."""
