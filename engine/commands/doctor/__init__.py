"""The command `kbqa doctor`."""
