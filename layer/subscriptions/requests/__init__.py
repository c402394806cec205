"""What processes with consumers of one subscription write for one another, in the state topic `deliveries`."""
