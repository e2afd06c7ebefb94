"""The command line: `logline`, or `python -m logline`. Each command is a file of its own, added in `cli.app`."""
