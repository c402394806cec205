"""Leases: the owner of a partition hands entries out to members that own none."""
