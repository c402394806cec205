"""Bounds of what one connection holds and does: replies, requests, threads, and time in the event loop."""
