"""The SDK: the public classes of the official client, over the services below."""
