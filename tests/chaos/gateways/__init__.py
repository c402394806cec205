"""Gateways of one fleet, and loads of official clients on them, for the tests that kill them."""
