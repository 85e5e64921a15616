"""Integrations with web frameworks. Each has an extra of its own."""
