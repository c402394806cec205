"""Clusters' values: known clusters, the place of a tenant, and the progress of copies."""
