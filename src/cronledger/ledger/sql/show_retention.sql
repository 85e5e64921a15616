-- Returns how long executions are kept, and who set that. No lock. Always one row.
SELECT r.keep, r.set_at, r.set_by FROM {schema}.retention_status r
