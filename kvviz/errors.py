"""Exceptions for errors caused by users, files or the network. Messages state the problem, then the fix.

KvvizError
├── ConfigError      a setting is out of range
├── RequestError     a prompt or command is invalid
├── ModelError       a model is missing, broken or unsupported
├── RecordingError   a recording is unreadable
├── TraceError       a trace can't be read or simulated
└── MissingError     a step, frame or entry doesn't exist, or no longer exists
"""

from __future__ import annotations

from typing import Any


class KvvizError(Exception):
    """Base class of all errors meant for users: a `message`, a machine-readable `code` and `details`."""

    default_code = "error"

    def __init__(self, message: str, *, code: str | None = None, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or self.default_code
        self.details = details


class ConfigError(KvvizError):
    """A setting is out of range."""

    default_code = "bad_setting"


class RequestError(KvvizError):
    """A prompt or command is invalid."""

    default_code = "bad_request"


class ModelError(KvvizError):
    """A model is missing, broken or unsupported."""

    default_code = "model"


class RecordingError(KvvizError):
    """A recording is unreadable."""

    default_code = "bad_recording"


class TraceError(KvvizError):
    """A trace of requests can't be read or simulated."""

    default_code = "bad_trace"


class MissingError(KvvizError):
    """A step, frame or entry doesn't exist, or no longer exists."""

    default_code = "missing"
