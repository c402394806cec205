"""`pok doctor`: what is wrong with this machine, this cluster, these rights."""
