"""`kvviz replay`: serves the page with a recording, without a model."""

from __future__ import annotations

import zipfile
from pathlib import Path

from kvviz.commands.options import AllowHost, Host, NoOpen, Port, RecordingFile, RootPath
from kvviz.commands.serve import browser_name, run_server


def replay(
    file: RecordingFile,
    host: Host = "127.0.0.1",
    port: Port = None,
    root_path: RootPath = "",
    allow_host: AllowHost = None,
    no_open: NoOpen = False,
) -> None:
    """Show a recording, without loading a model."""
    from kvviz.web.app import ServerConfig

    _check_recording(file)
    run_server(
        ServerConfig(
            host=host,
            port=port,
            root_path=root_path,
            allow_hosts=tuple(allow_host or ()),
            replay_path=file,
            open_browser=not no_open and browser_name() is not None,
        )
    )


def _check_recording(path: Path) -> None:
    """Raise `RecordingError` if `path` is obviously not a recording, without reading it all."""
    try:
        if not path.is_file():
            raise ValueError  # a device is read without end
        with zipfile.ZipFile(path) as archive:
            archive.getinfo("header.json")
            archive.getinfo("events.ndjson")
    except (OSError, ValueError, KeyError, zipfile.BadZipFile):
        from kvviz.log.recording import Recording

        Recording.open(path).close()
