"""Experiments: scripted runs that show one mechanic each, and the timing attack.

May import: config, engine, errors, events, log, model.
Libraries: torch, transformers.
"""
