"""Traces: requests as hashes of their blocks, and simulated caches of a given size.

May import: calculator, errors, messages.
"""
