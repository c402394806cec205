"""Cursors' values say what a subscription has acknowledged, what processes ask of its owner and what they lease."""
