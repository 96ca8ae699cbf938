"""Run the `kvviz` command as `python -m kvviz`."""

from kvviz.commands.main import main

main()
