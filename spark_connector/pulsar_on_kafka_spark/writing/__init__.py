"""Rows become records that Spark's Kafka sink writes, in a transaction where one is requested."""
