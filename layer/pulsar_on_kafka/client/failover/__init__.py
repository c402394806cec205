"""Clients that follow a map of tenants: their producers, consumers and readers move with a tenant from one cluster to
another. Only what `pok+lookup://` and `pok+map://` clients make is of this kind; others pay nothing."""
