"""The state log: one adapter over compacted Kafka partitions for every piece of state this project keeps."""
