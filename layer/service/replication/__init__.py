"""Topics, and subscriptions, that go on in another cluster."""
