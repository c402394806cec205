"""Commands that move a tenant or import from a Pulsar cluster."""
