"""What it takes to start Spark: which releases go together, a quick JVM, a server elsewhere."""
