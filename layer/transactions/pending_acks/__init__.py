"""What open transactions hold of a cursor, and how their outcome reaches it."""
