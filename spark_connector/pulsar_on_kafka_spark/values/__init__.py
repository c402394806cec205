"""Payloads become the columns of their schema, and columns become payloads, inside the JVM."""
