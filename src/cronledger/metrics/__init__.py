"""Metrics of a replica and of the ledger, for Prometheus. `measurements` needs no library."""
