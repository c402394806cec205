"""Names of topics and subscriptions become names of Kafka topics and consumer groups, and come back from them."""
