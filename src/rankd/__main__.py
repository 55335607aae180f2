"""`python -m rankd` is the command `rankd`."""

from rankd.cli.main import main

if __name__ == "__main__":
    main()
