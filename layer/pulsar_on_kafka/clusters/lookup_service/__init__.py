"""The lookup service: it returns the cluster of a tenant to clients."""
