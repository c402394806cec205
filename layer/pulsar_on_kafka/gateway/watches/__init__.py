"""Watches notify V5 clients of changes: of the topics of a namespace, and of the gateways of coordinators."""
