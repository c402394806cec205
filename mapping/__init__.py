"""Pure mappings between Pulsar's world and Kafka's: names, ids, records, keys. No I/O, no threads, no clock."""
