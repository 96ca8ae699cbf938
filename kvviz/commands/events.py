"""`kvviz events`: the events of a recording, one JSON record per line."""

from __future__ import annotations

import os
import sys
from contextlib import closing

from kvviz.commands.options import RecordingFile
from kvviz.errors import RecordingError


def events(file: RecordingFile) -> None:
    """Print the events of a recording, one JSON record per line: sequence number, microseconds, event."""
    from kvviz.log.recording import Recording

    with closing(Recording.open(file)) as recording:
        if sys.stdout is None:
            raise RecordingError("Standard output is closed; redirect the events to a file or a pipe.", code="no_file")
        out = sys.stdout.buffer
        try:
            for line in recording.lines:
                out.write(line + b"\n")
            out.flush()
        except OSError as error:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # discard the rest without another error
            if not isinstance(error, BrokenPipeError):  # a reader such as `head` closed the pipe
                raise RecordingError(
                    f"Can't write the events ({error.strerror}); write to a disk with free space.", code="no_file"
                ) from error
