"""The event log and what folds it: recordings, frames, the world, the slots and the digest.

May import: config, errors, events, messages.
"""
