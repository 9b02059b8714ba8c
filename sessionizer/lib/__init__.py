"""Session rules and algorithms as pure functions: frames in, frames out."""

__version__ = "0.2.0"
