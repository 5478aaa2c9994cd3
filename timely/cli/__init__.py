"""The command line: ``timely`` and its commands, one module each."""
