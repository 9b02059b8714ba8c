"""Admission: which events count."""
