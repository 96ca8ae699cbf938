"""The benchmarks of `kvviz bench`, one module per benchmark.

May import: comparison, config, engine, errors, events, model, traces.
Libraries: torch, transformers.
"""
