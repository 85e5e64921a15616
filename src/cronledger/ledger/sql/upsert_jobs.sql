-- Makes the jobs of a source equal to its declarations. A pause stays; a retirement ends. One row for each
-- job that is the source's own: its name and revision. A job that does not come back belongs to another
-- source.
-- Lock: jobs by name, then by trigger their schedules.
INSERT INTO {schema}.jobs AS j
    (name, schedule, timezone, day_or, dst_gap, dst_fold, schedule_delay, jitter, starts_at, ends_at,
     grace, catch_up, catch_up_window, catch_up_limit, overlap, max_running, queue, handler, target,
     payload, run_timeout, stale_timeout, allow_stale_reentry, max_attempts, retry_backoff,
     retry_jitter, retry_on, never_retry_on, scope_kind, scopes, description, payload_schema, owner,
     labels, notify, ping, start_by, finish_by, expect_duration, source, deploy, edited_by)
SELECT r.name, r.schedule, r.timezone, r.day_or, r.dst_gap, r.dst_fold, r.schedule_delay, r.jitter,
       r.starts_at, r.ends_at, r.grace, r.catch_up, r.catch_up_window, r.catch_up_limit, r.overlap,
       r.max_running, r.queue, r.handler, r.target, r.payload, r.run_timeout, r.stale_timeout,
       r.allow_stale_reentry, r.max_attempts, r.retry_backoff, r.retry_jitter, r.retry_on,
       r.never_retry_on, r.scope_kind, r.scopes, r.description, r.payload_schema,
       r.owner, r.labels, r.notify, r.ping, r.start_by, r.finish_by, r.expect_duration,
       %(source)s, %(deploy)s, %(requested_by)s
FROM jsonb_populate_recordset(NULL::{schema}.jobs, %(jobs)s) r
ORDER BY r.name
ON CONFLICT (name) DO UPDATE
SET schedule = EXCLUDED.schedule, timezone = EXCLUDED.timezone, day_or = EXCLUDED.day_or,
    dst_gap = EXCLUDED.dst_gap, dst_fold = EXCLUDED.dst_fold,
    schedule_delay = EXCLUDED.schedule_delay, jitter = EXCLUDED.jitter,
    starts_at = EXCLUDED.starts_at, ends_at = EXCLUDED.ends_at, grace = EXCLUDED.grace,
    catch_up = EXCLUDED.catch_up, catch_up_window = EXCLUDED.catch_up_window,
    catch_up_limit = EXCLUDED.catch_up_limit, overlap = EXCLUDED.overlap,
    max_running = EXCLUDED.max_running, queue = EXCLUDED.queue, handler = EXCLUDED.handler,
    target = EXCLUDED.target, payload = EXCLUDED.payload, run_timeout = EXCLUDED.run_timeout,
    stale_timeout = EXCLUDED.stale_timeout, allow_stale_reentry = EXCLUDED.allow_stale_reentry,
    max_attempts = EXCLUDED.max_attempts, retry_backoff = EXCLUDED.retry_backoff,
    retry_jitter = EXCLUDED.retry_jitter, retry_on = EXCLUDED.retry_on,
    never_retry_on = EXCLUDED.never_retry_on, scope_kind = EXCLUDED.scope_kind,
    scopes = EXCLUDED.scopes, description = EXCLUDED.description,
    payload_schema = EXCLUDED.payload_schema, owner = EXCLUDED.owner, labels = EXCLUDED.labels,
    notify = EXCLUDED.notify, ping = EXCLUDED.ping,
    start_by = EXCLUDED.start_by, finish_by = EXCLUDED.finish_by, expect_duration = EXCLUDED.expect_duration,
    source = EXCLUDED.source, deploy = EXCLUDED.deploy, edited_by = EXCLUDED.edited_by, retired_at = NULL
WHERE j.source IS NULL OR j.source = EXCLUDED.source OR j.retired_at IS NOT NULL
RETURNING j.name, j.revision
