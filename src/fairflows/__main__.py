"""``python -m fairflows``: the command."""

from fairflows.cli.main import main

if __name__ == "__main__":
    main()
