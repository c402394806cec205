"""Spark's Python data source: executors without a JVM turn records into Arrow columns."""
