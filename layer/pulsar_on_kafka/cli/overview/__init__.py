"""`pok overview` and `pok top`: all subscriptions at a glance, once or live."""
