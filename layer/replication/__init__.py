"""Subscriptions that go on in another cluster."""
