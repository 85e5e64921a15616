"""Maintenance: the work of a replica beside claiming and running.

It checks in, sweeps stale executions, calls scope providers, and listens for notifications.
"""
