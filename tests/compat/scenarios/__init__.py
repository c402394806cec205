"""The built-in scenarios, a module for each area."""
