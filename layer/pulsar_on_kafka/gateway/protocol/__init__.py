"""Frames, replies and requests of one connection, and their bounds in bytes, threads and time."""
