"""End-to-end encryption of messages: AES-256-GCM with a data key that RSA wraps, as Pulsar's clients do it."""
