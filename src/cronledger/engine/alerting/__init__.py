"""Delivers alerts: claims the executions of the queue `alerts`, and sends each to its channel.

A delivery is an execution, so it has retries and a history. It has slots of its own, so that full
replicas do not delay it. `migrations/functions/alerts/raise_alerts.sql` creates the deliveries.
"""
