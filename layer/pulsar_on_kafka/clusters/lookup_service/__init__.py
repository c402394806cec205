"""The lookup service: it tells clients which cluster serves a tenant."""
