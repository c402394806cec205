"""Commands about schemas: offline checks and the registry."""
