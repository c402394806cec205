"""A client of Kafka's protocol for requests that librdkafka lacks, or sends for one group at a time only."""
