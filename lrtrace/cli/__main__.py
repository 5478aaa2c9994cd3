"""Runs ``python -m lrtrace.cli``."""

from lrtrace.cli.main import main

if __name__ == "__main__":
    main()
