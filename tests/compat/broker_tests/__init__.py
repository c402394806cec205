"""Pulsar's own tests of clients, which it plays with a broker, played with a gateway (docs/gateway.md).

Base classes of ours (`java`) stand before Pulsar's on the class path. `suite.toml` says which classes are run, and what
of them does not pass, with the reason; what happens otherwise is told, and fails the run.
"""
