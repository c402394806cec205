"""The service's work on ledgers: lists, expiry, trimming, deletion."""
