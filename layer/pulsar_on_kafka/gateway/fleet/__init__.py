"""The fleet of gateways: which gateway serves which bundle of topics."""
