"""The web side: guards, headers, static files, the HTTP API and the websocket. Only this and `server` know FastAPI."""
