"""The encodings write numbers, text and byte strings the way names, ids and records hold them."""
