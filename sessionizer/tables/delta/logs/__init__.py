"""What a table's log says: by its files where this process sees them, else by the JVM beside it, or by a server."""
