"""The commands of `pok`, one module each."""
