"""`python -m tidelake`: the command line of this Python, wherever its script lies."""

from tidelake.cli import main

if __name__ == "__main__":
    main()
