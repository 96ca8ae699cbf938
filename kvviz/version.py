"""The version, in one place for the package, the recordings' headers and the build."""

__version__ = "0.1.0"
