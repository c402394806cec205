"""The node: what all clients of a process share for one cluster."""
