"""The `kvviz` command.

May import: api, bench, calculator, comparison, config, engine, errors, log, messages, model, sources, traces,
version, web.
Libraries: rich, typer.
"""
