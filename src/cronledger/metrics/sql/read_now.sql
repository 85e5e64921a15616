-- Returns the time of the ledger, and the number of its last migration. No lock. Always one row.
SELECT {schema}.db_now() AS now,
       (SELECT max(left(m.name, 4)::integer) FROM {schema}.schema_migrations m WHERE m.name ~ '^[0-9]{4}_') AS schema_version
