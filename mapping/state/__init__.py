"""Value codecs of the state topics, one module for each kind of record."""
