"""Sessions: logs that clients can watch, with their lifetimes and limits.

May import: errors, sources.
Libraries: asyncio.
"""
