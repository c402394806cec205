"""The session of a client on a cluster, and what it keeps up to date."""
