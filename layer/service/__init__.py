"""What somebody has to do for a cluster: by `pok serve`, or in a client's process while no service is there."""
