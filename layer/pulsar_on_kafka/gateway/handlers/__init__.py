"""Handlers of a connection: one for each family of commands, and what the family works with."""
