"""The map of tenants to clusters; clients read it from a lookup service or from a file."""
