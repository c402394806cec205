"""Benchmarks measure this project's costs, beside the raw client and beside the official client on real Pulsar."""
