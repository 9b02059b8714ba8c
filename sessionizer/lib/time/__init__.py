"""Time: microseconds on columns, spans, watermarks."""
