"""Windows: what the accepted events make, sessions or sliding windows."""
