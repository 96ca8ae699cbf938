"""A transformers model behind its two doors: it computes what the engine decides, and keeps K and V in the paged pool.

May import: config, engine, errors, events, log, version.
Libraries: torch, transformers, safetensors, gguf.
"""
