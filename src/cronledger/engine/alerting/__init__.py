"""Delivers alerts: claims deliveries from the outbox, and sends each to its channel.

Each replica has slots for deliveries, so that full replicas do not delay them.
`migrations/functions/alerts/raise_alerts.sql` creates the deliveries.
"""
