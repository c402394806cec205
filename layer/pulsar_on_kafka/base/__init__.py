"""The ground of every floor: errors, clocks, deadlines, threads, meters. It knows neither Kafka nor Pulsar."""
