"""A stream divides a subscription's messages into micro-batches that Spark triggers and replays."""
