"""What a person, a file or the network can cause, as exceptions that say: expected, came, what to do.

KvvizError
├── ConfigError      a setting outside its limits
├── RequestError     a prompt or command that cannot be carried out
├── ModelError       weights that are missing, broken or not supported
├── RecordingError   a file that cannot be read
├── TraceError       a trace that cannot be read or simulated
└── MissingError     a step, frame or entry that is not there (any more)
"""

from __future__ import annotations

from typing import Any


class KvvizError(Exception):
    """Base of all errors meant for a person. `message` is one sentence, `code` one word, `details` its numbers."""

    default_code = "error"

    def __init__(self, message: str, *, code: str | None = None, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or self.default_code
        self.details = details


class ConfigError(KvvizError):
    """A setting is outside its limits."""

    default_code = "bad_setting"


class RequestError(KvvizError):
    """A prompt or a command cannot be carried out."""

    default_code = "bad_request"


class ModelError(KvvizError):
    """A model is missing, broken or not supported."""

    default_code = "model"


class RecordingError(KvvizError):
    """A recording cannot be read."""

    default_code = "bad_recording"


class TraceError(KvvizError):
    """A trace of requests cannot be read or simulated."""

    default_code = "bad_trace"


class MissingError(KvvizError):
    """A step, frame or entry is not there, or not any more."""

    default_code = "missing"
