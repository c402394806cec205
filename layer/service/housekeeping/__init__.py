"""What dead processes left behind in the state topics, and what Kafka would forget: maintenance sees to both."""
