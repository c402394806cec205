"""The mappings translate names, ids, records and keys between Pulsar and Kafka. No I/O, no threads, no clock."""
