"""Topics, namespaces, clusters, tenants and policies, as the state topics have them on record."""
