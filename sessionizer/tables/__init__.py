"""The Delta tables: the only place that reads, writes and creates them."""
