"""`cronledger observe`: run a command that another scheduler starts, and report its run.

`process` runs the command, `spool` keeps reports on disk, and `delivery` sends them to the ledger.
`sides` remembers which scheduler runs a job.
A wrapper starts each minute on many hosts, so nothing here imports settings or the ledger, and
psycopg is imported while the command runs already.
"""
