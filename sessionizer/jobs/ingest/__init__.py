"""Files become the events table."""
