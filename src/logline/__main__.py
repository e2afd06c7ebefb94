"""`python -m logline`, and `logline`: the command line."""

import sys


def main() -> None:
    """The entry point. Importing the command line takes a while: a Ctrl-C meanwhile is one like any other."""
    try:
        from logline.cli.app import main as run
    except KeyboardInterrupt:
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()
