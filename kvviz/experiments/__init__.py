"""Experiments: scripted runs that each demonstrate one mechanism, and the timing attack.

May import: config, engine, errors, events, log, model.
Libraries: torch, transformers.
"""
