"""Schemas, the results of checks and JSON text are the words in which all checkers speak."""
