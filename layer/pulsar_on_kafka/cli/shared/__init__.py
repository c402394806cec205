"""Options, output and values that commands share."""
