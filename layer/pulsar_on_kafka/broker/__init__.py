"""The work of a Pulsar broker, which runs in the client's process here."""
