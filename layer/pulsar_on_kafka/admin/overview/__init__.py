"""All subscriptions of a cluster at a glance: what is left to do, how fast it goes, who does it, and what is stuck."""
