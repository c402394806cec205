"""What this project costs, measured beside the raw client and beside the official client on real Pulsar."""
