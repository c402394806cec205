"""The lists of ledgers: which there are, how large, which may go; and the owner that keeps them true."""
