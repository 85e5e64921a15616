-- Lists the valid report tokens by id, and the revoked ones too if `revoked`. job NULL: all jobs. No lock.
-- Zero rows: there are none.
SELECT t.id, t.job_name, t.scope_kind, t.scope_id, t.host, t.created_at, t.created_by, t.last_used_at, t.revoked_at,
       t.revoked_by
FROM {schema}.report_token_status t
WHERE (%(revoked)s::boolean OR t.revoked_at IS NULL) AND (%(job)s::text IS NULL OR t.job_name = %(job)s)
ORDER BY t.id
LIMIT %(max_rows)s::integer
