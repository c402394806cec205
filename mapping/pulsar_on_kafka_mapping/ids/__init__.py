"""The ids number messages, ledgers, transactions and versions of schemas."""
