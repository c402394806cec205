"""Dispatch of an owned partition's entries to the consumers of a process."""
