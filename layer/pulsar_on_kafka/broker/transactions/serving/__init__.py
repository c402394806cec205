"""Processes serve coordinators: they claim a coordinator's log, decide, and answer one another."""
