"""Which parts a process is made of."""
