"""Who gets which message: one member per subscription and process, its partitions, and the consumers attached to it."""
