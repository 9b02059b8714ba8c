"""Sliding windows (SEMANTICS §10, KIP-450)."""
