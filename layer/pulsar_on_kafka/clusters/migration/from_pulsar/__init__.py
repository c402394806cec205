"""A tenant of a Pulsar cluster is copied to this Kafka cluster: namespaces, topics, schemas, messages, and what its
subscriptions have acknowledged. One way: nothing of it changes anything in Pulsar."""
