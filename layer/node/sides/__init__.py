"""One cluster's side of subscriptions, beside that of another one: read, compared, carried over."""
