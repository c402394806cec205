"""Rates of publishing and dispatching: what policies set, and the buckets that keep to it."""
