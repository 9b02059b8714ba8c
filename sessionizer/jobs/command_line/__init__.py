"""The commands as typer reads them, by theme; what they do is imported when one is called."""
