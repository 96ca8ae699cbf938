"""Comparisons: one model with several caches in lockstep, with the cost and quality of each.

May import: config, engine, errors, events, log, messages, model.
Libraries: torch, transformers.
"""
