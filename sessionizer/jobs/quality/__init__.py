"""Checks of the tables by Great Expectations."""
