"""Maintenance: what a replica does beside claiming and running.

It checks in, sweeps stale executions, asks scope providers, and listens for notifications.
"""
