"""The ledger in PostgreSQL: connections, statements, migrations, the embedded server."""
