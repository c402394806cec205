"""A tenant moves from one Kafka cluster to another: metadata, messages, progress of subscriptions, the switch, and what
is left on the old one."""
