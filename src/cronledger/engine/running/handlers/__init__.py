"""Handlers: one module for each kind (`python`, `command`, `sql`, `http`), which runs one attempt
and returns its outcome."""
