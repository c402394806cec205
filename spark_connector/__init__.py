"""The Spark reader and writer. Empty in this version (CHANGELOG.md)."""
