"""What the tables are asked: look-ups, changes, SQL."""
