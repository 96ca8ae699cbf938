"""Benchmarks: what `kvviz bench` measures, one measure a module.

May import: comparison, config, engine, errors, events, model, traces.
Libraries: torch, transformers.
"""
