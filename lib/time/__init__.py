"""Time: durations, microseconds on columns, watermarks."""
