"""Metrics and traces for systems outside. Only this package imports the libraries of its extras."""
