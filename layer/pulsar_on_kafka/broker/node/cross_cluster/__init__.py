"""A side is what one of two clusters has: copies of a topic, and the cursors of its subscriptions."""
