"""Several processes that serve one embedded folder: one writes, the others read."""
