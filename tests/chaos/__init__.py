"""Crash proofs: processes that use the SDK are killed and stopped, and a checker outside looks at what held."""
