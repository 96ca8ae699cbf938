"""`python -m kvviz`: the same as the `kvviz` command."""

from kvviz.commands.main import main

main()
