"""Integrations with web frameworks. Each needs its extra, and only its users import it."""
