"""Reading of what the state topics and data topics have on record of transactions."""
