"""A fuzzer that is guided by coverage looks for bytes that no decoder of a state topic may choke on."""
