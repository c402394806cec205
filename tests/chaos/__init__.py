"""Crash proofs: processes that use the SDK are killed, stopped and continued, and a checker outside looks at what held."""
