"""Commands that run a program or a service, one module each."""
