"""`python -m leviathan` is `leviathan`."""

from leviathan.cli import main

main.run()
