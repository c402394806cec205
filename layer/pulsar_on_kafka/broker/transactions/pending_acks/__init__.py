"""Pending acks: open transactions hold acknowledgements of a cursor, until their outcome reaches it."""
