"""Replication's pure part: positions of originals, progress, and what was acknowledged elsewhere."""
