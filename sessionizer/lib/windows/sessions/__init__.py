"""Session windows (SEMANTICS §2, §5)."""
