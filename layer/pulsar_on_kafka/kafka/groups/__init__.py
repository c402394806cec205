"""Memberships in Kafka's groups: joining, committing, leaving, also in the name of dead members."""
