"""Streams request bodies to files."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path

from fastapi import Request

from kvviz.errors import KvvizError


async def save_body(request: Request, path: Path, too_large: KvvizError) -> tuple[str, int]:
    """Write the body to `path`, and return the hash of its content (32 hex digits) and its size in bytes.

    Raises `too_large` if the body exceeds that error's `limit`. If the request declares its length, it raises at once.
    """
    limit = too_large.details["limit"]
    declared = request.headers.get("content-length", "0")
    if declared.isdecimal() and int(declared[:20]) > limit:
        raise too_large
    digest, num_bytes = hashlib.sha256(), 0
    with await asyncio.to_thread(path.open, "wb") as file:
        async for chunk in request.stream():
            num_bytes += len(chunk)
            if num_bytes > limit:
                raise too_large
            digest.update(chunk)
            await asyncio.to_thread(file.write, chunk)
    return digest.hexdigest()[:32], num_bytes
