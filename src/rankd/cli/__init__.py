"""The command line: `rankd …` and `python -m rankd …`."""
