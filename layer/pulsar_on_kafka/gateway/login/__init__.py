"""Login of clients, and the roles that tokens and certificates grant."""
