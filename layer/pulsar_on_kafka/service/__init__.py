"""The roles of `pok serve`, which a client's process takes on while no service is there."""
