"""Traces: requests as hashes of their blocks, and what caches of a given size would have kept.

May import: calculator, errors, messages.
"""
