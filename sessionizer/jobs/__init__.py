"""The commands: each composes steps from `lib` with tables from `tables`."""
