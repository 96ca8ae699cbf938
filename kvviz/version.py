"""The version of the package, of recording headers and of the build."""

__version__ = "0.1.0"
