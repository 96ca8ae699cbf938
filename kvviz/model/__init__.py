"""Runs a transformers model for the engine, through its cache and attention interfaces, with K and V in a paged pool.

`instrumented` connects the model and runs the self-check at load.

May import: config, engine, errors, events, log, version.
Libraries: torch, transformers, safetensors, gguf.
"""
