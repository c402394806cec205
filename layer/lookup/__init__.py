"""Which cluster has which tenant: the map, the service that answers for it, and clients that follow it."""
