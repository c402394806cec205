"""Adapters for other projects' clients and frameworks. Each needs an extra of its own."""
