"""What a command would do, told by the logs of the tables before Spark starts."""
