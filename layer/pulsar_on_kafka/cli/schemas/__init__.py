"""Commands about schemas: offline checks, extraction, and the registry."""
