"""Session rules and algorithms as pure functions: frames in, frames out."""
