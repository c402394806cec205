"""Rows name messages, and the driver acknowledges those on a subscription."""
