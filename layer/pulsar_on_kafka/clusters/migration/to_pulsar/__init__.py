"""Export of a tenant to a running Apache Pulsar."""
