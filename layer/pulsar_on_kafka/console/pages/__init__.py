"""Pages of the console: one module each."""
