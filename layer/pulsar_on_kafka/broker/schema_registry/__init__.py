"""The schema registry: numbered schemas of each topic, and what producers and consumers may do with them."""
