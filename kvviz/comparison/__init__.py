"""Comparisons: the same model with several caches in lockstep, and the cost and harm of each.

May import: config, engine, errors, events, log, messages, model.
Libraries: torch, transformers.
"""
