"""`python -m tidelake`: the command line, run with this Python."""

from tidelake.cli import main

if __name__ == "__main__":
    main()
