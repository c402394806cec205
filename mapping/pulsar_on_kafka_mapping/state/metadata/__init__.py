"""Metadata values describe topics, namespaces and subscriptions, and the schemas, producers and ledgers of topics."""
