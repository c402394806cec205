"""The map of tenants says which cluster has which tenant; clients read it from a lookup service or from a file."""
