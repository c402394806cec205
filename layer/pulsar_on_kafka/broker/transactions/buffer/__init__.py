"""The transaction buffer of a data partition: which of its records belong to transactions, and which may be read."""
