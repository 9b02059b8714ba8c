"""Looks at the tables: as they were, without Spark, in figures."""
