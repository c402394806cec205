"""Clusters' values say which clusters know one another, where a tenant is, and how far copies of it are."""
