"""Tenants on several clusters: those that a gateway serves, and requests about the others."""
