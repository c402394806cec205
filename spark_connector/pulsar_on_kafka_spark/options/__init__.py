"""Options of reads, streams and writes are checked before anything is touched."""
