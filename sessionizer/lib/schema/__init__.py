"""Columns of a source that change: what rows told by those of before are by those of today."""
