"""Receiving, shared by consumers and readers: listeners, batches, schemas, start positions."""
