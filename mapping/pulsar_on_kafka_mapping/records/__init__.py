"""Records hold messages: the headers, keys and values of one Kafka record, and their meaning for its messages."""
