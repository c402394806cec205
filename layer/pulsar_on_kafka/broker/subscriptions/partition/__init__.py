"""One owned partition of a subscription. No I/O, no threads."""
