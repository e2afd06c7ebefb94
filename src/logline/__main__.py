"""`python -m logline`: the command line."""

from logline.cli.app import main

if __name__ == "__main__":
    main()
