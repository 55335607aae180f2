"""Several processes on one ledger: API processes append, one projector ranks, Redis serves the ranks."""
