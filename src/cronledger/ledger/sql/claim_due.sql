-- Claims executions that exist and are due: PENDING ones are won, FAILED ones retried, and, with
-- trusted_since, stale leases stolen. At most one for each token; a token that was not used can be offered
-- again.
-- Lock: schedules, limited queues and jobs, executions, all SKIP LOCKED, until the end of the transaction
-- (see the function). Zero rows: nothing was due, or it could not be locked. A row with `refused` was not
-- claimed, because the database does not accept one of its values.
SELECT c.more, CASE c.how WHEN 'refused' THEN c.payload END,
       c.job_name, c.scope_kind, c.scope_id, c.plan_time, c.queue, c.id, c.lease_token, c.attempt,
       c.max_attempts, c.trigger, CASE WHEN c.how <> 'refused' THEN c.payload END, c.revision, c.started_at, c.how
FROM {schema}_internal.claim_due(
    %(runner)s, %(queues)s::text[], %(kinds)s::text[], %(functions)s::text[], %(tokens)s::uuid[],
    %(trusted_since)s::timestamptz, %(sql_commands)s::boolean, %(excluded_jobs)s::text[],
    %(max_rows)s::integer) c
