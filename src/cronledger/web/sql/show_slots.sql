-- Returns the number of live runners, and the executions that they can run at once. No lock. Always one row.
SELECT count(*) AS runners, coalesce(sum(r.slots), 0)::bigint AS slots
FROM {schema}.runner_status r WHERE r.state = 'alive'
