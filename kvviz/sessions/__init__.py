"""Sessions: which logs can be watched, who watches them, when they end, and how many there may be.

May import: errors, sources.
Libraries: asyncio.
"""
