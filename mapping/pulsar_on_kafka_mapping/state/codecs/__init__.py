"""The codecs write the parts that values of several state topics have in common."""
