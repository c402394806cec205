"""What another cluster has beside this one: copies of a topic, and its side of subscriptions."""
