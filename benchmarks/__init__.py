"""The engine's figures, with rivals in the same run: `python -m benchmarks --help`."""
