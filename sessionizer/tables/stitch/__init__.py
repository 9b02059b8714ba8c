"""A source whose events get a column from a mapping table."""
