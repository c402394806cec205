"""State topics remember what the system knows: their catalogue, their keys and, in the folders below, their values."""
