"""An App for the ledger whose database is put back to a snapshot. The job is written by SQL."""

from cronledger import App

app = App("side")
