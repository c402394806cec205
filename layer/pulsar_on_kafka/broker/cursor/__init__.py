"""The cursor of one subscription on one partition: what was acknowledged, and how that survives."""
