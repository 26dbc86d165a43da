"""``python -m fairflows``: the command."""

from fairflows.cli.main import main

main()
