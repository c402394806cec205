"""Values of the public API: messages, ids, options, authentication."""
