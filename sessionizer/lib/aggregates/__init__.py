"""Aggregates as partial / merge / finish triples."""
