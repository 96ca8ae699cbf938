"""The web application: routes, websocket, guards, headers and static files.

May import: calculator, errors, experiments, log, messages, sessions, sources, traces.
Libraries: asyncio, fastapi, starlette, uvicorn.
"""
