"""Handlers: what runs when an execution starts. One module per kind."""
