"""Records hold messages: the headers, keys and values of one Kafka record, and what they say of the messages in it."""
