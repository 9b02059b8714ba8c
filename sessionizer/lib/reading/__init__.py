"""Reading sessions and windows (SEMANTICS §11)."""
