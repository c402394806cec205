"""Schema compatibility checkers. Empty in this version: they come with the schema registry (CHANGELOG.md)."""
