"""The few routes of Pulsar's REST without which clients and tools do not begin."""
