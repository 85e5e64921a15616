"""Spans of attempts and of enqueuing calls. Only `spans` imports OpenTelemetry."""
