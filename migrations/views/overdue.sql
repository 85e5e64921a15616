-- What has been due for more than two seconds and has not started, and RUNNING executions whose lease ended two
-- seconds ago, with the first reason that applies. An expired lease that may be stolen waits for a runner that can
-- run the job; any live replica ends the others. Only what is due is read: the due index queue by queue, what was
-- woken, the parked index, the jobs that are paused or broken, the executions that wait, the RUNNING ones, the jobs
-- with a scope provider. A replica calls a provider every minute
-- (EVERY_SECONDS in scope_providers.py), so a provider that was not called for five minutes has no runner. Only
-- a job with a schedule is known to have a provider.
CREATE OR REPLACE VIEW {schema}.overdue AS
WITH RECURSIVE held AS MATERIALIZED (
    SELECT e.job_name, e.scope_kind, e.scope_id, e.plan_time, e.queue, e.id, e.runner_id, e.attempt, e.max_attempts,
           e.cancel_requested_at, e.stale_after
    FROM {schema}.executions e
    WHERE e.status = 'RUNNING'
), due_queues AS (
    (SELECT s.queue FROM {schema}.schedules s
     WHERE s.next_due_at IS NOT NULL AND NOT s.woken AND {schema}_internal.scope_host(s.scope_kind, s.scope_id) = '' ORDER BY s.queue LIMIT 1)
    UNION ALL
    SELECT (SELECT s.queue FROM {schema}.schedules s
            WHERE s.next_due_at IS NOT NULL AND NOT s.woken AND {schema}_internal.scope_host(s.scope_kind, s.scope_id) = '' AND s.queue > d.queue
            ORDER BY s.queue LIMIT 1)
    FROM due_queues d WHERE d.queue IS NOT NULL
), to_plan AS (
    SELECT s.* FROM due_queues d
    JOIN {schema}.schedules s
        ON s.queue = d.queue AND NOT s.woken AND {schema}_internal.scope_host(s.scope_kind, s.scope_id) = '' AND s.next_due_at < {schema}.db_now() - interval '2 s'
    UNION ALL
    SELECT s.* FROM {schema}.schedules s
    WHERE {schema}_internal.scope_host(s.scope_kind, s.scope_id) > '' AND NOT s.woken AND s.next_due_at < {schema}.db_now() - interval '2 s'
    UNION ALL
    SELECT s.* FROM {schema}.schedules s
    WHERE s.woken AND s.next_due_at < {schema}.db_now() - interval '2 s'
), due AS (
    SELECT s.job_name, s.scope_kind, s.scope_id, s.queue, s.next_plan_time AS plan_time,
           greatest(s.next_due_at, s.next_plan_time) AS due_at, NULL::bigint AS id, NULL::text AS parked,
           NULL::timestamptz AS forced_at, NULL::text AS lease, NULL::boolean AS is_stealable
    FROM to_plan s
    -- CASE, because until jobs is analyzed, PostgreSQL expects IS NULL to be true for one job in 200. It would then
    -- begin with the jobs, and read all that is due once for each of them.
    JOIN {schema}.jobs j ON j.name = s.job_name AND CASE WHEN j.retired_at IS NULL THEN j.schedule IS NOT NULL END
    WHERE (s.retired_at IS NULL OR s.returned_at IS NOT NULL)
    UNION ALL
    SELECT s.job_name, s.scope_kind, s.scope_id, s.queue, s.next_plan_time,
           s.next_plan_time + j.schedule_delay, NULL, s.parked, NULL, NULL, NULL
    FROM {schema}.schedules s JOIN {schema}.jobs j ON j.name = s.job_name AND j.retired_at IS NULL
    WHERE s.parked IN ('waiting', 'limit', 'no_runner')
    UNION ALL
    SELECT s.job_name, s.scope_kind, s.scope_id, s.queue, s.next_plan_time,
           coalesce(s.next_plan_time + j.schedule_delay, s.planned_through), NULL, s.parked, NULL, NULL, NULL
    -- OFFSET 0: the scopes of each such job are found by its key, and not among all schedules.
    FROM (SELECT p.name, p.schedule_delay FROM {schema}.jobs p LEFT JOIN {schema}.queues q ON q.name = p.queue
          WHERE p.retired_at IS NULL
            AND (p.paused_at IS NOT NULL OR p.spec_error IS NOT NULL OR q.paused_at IS NOT NULL) OFFSET 0) j
    CROSS JOIN LATERAL (SELECT x.* FROM {schema}.schedules x
                        WHERE x.job_name = j.name AND x.parked IN ('paused', 'spec_error') OFFSET 0) s
    WHERE s.parked = 'spec_error' OR s.next_plan_time IS NOT NULL
    UNION ALL
    SELECT e.job_name, e.scope_kind, e.scope_id, e.queue, e.plan_time, e.next_attempt_at, e.id, NULL,
           CASE WHEN e.trigger = 'manual' AND e.status = 'PENDING' THEN e.due_at END, NULL, NULL
    FROM {schema}.executions e
    WHERE e.next_attempt_at < {schema}.db_now() - interval '2 s'
    UNION ALL
    SELECT h.job_name, h.scope_kind, h.scope_id, h.queue, h.plan_time, h.stale_after, h.id, NULL, NULL,
           format('its lease ended at %s (attempt %s on %s)',
                  {schema}_internal.utc_text(h.stale_after), h.attempt, h.runner_id),
           coalesce(j.retired_at IS NULL AND {schema}_internal.may_be_stolen(
               j.allow_stale_reentry, h.cancel_requested_at, h.attempt, h.max_attempts), false)
    FROM held h LEFT JOIN {schema}.jobs j ON j.name = h.job_name
), late AS (
    SELECT d.* FROM due d WHERE d.due_at < {schema}.db_now() - interval '2 s'
), alive AS MATERIALIZED (
    SELECT r.queues, r.handlers, r.labels, r.slots > r.running AS has_slot, r.version <> 'external' AS is_replica,
           format('; %s is failing (%s)', r.id, {schema}_internal.loop_errors(r.diagnostics -> 'failing')) AS failing,
           {schema}_internal.loop_errors(r.diagnostics -> 'failing') IS NOT NULL AS is_failing
    FROM {schema}.runners r
    WHERE r.state = 'running' AND r.stale_after > {schema}.db_now()
), by_scope AS (
    SELECT h.job_name, h.scope_kind, h.scope_id, min(h.id) AS id, min(h.stale_after) AS stale_after
    FROM held h WHERE h.runner_id <> 'observed' GROUP BY 1, 2, 3
), by_job AS (
    SELECT h.job_name, count(*) AS count FROM held h WHERE h.runner_id <> 'observed' GROUP BY 1
), by_queue AS (
    SELECT h.queue, count(*) AS count FROM held h WHERE h.runner_id <> 'observed' GROUP BY 1
), home AS MATERIALIZED (
    SELECT {schema}_internal.other_database() IS NULL AS same
), providers AS (
    SELECT j.name AS job_name, j.scope_kind, j.queue, j.owner, j.labels, p.asked_at, p.asked_by, p.failures,
           p.failing_since, p.error, last.asked_at < {schema}.db_now() - interval '5 min' AS unasked,
           CASE WHEN last.asked_at < {schema}.db_now() - interval '5 min' THEN last.asked_at
                ELSE p.failing_since END AS due_at
    FROM {schema}.jobs j
    LEFT JOIN {schema}.scope_providers p ON p.job_name = j.name
    CROSS JOIN LATERAL (
        SELECT CASE WHEN j.schedule IS NULL THEN NULL
                    WHEN p.asked_at IS NOT NULL THEN p.asked_at
                    WHEN NOT EXISTS (SELECT FROM {schema}.schedules s WHERE s.job_name = j.name)
                    THEN (SELECT max(r.effective_from) FROM {schema}.job_revisions r
                          WHERE r.job_name = j.name) END AS asked_at
    ) last
    WHERE j.scopes IS NULL AND j.scope_kind <> 'global' AND j.every IS NULL AND j.retired_at IS NULL
), explained AS (
    SELECT l.*, j.owner, j.labels, b.id AS running_id, b.stale_after AS running_until, j.paused_by,
           j.paused_reason, j.spec_error, j.max_running, j.handler, j.on, q.paused_by AS queue_paused_by,
           q.paused_reason AS queue_paused_reason, q.max_running AS queue_max_running, r.able, r.has_slot, r.failing,
           CASE WHEN NOT coalesce((SELECT h.same FROM home h), false) THEN 'database'
                WHEN NOT l.is_stealable THEN 'lease_expired'
                WHEN j.name IS NULL OR j.retired_at IS NOT NULL THEN 'retired'
                WHEN l.id IS NULL AND j.spec_error IS NOT NULL THEN 'spec_error'
                WHEN j.paused_at IS NOT NULL AND coalesce(j.paused_until > {schema}.db_now(), true)
                     AND coalesce(l.forced_at <= j.paused_at, true) THEN 'paused'
                WHEN q.paused_at IS NOT NULL THEN 'queue_paused'
                WHEN l.is_stealable THEN 'lease_expired'
                WHEN l.id IS NOT NULL AND j.handler = 'external' THEN 'external'
                WHEN NOT r.able THEN 'no_runner'
                WHEN l.parked IS NOT NULL THEN l.parked
                WHEN b.id IS NOT NULL AND (j.overlap IN ('wait', 'replace')
                                           OR l.id IS NOT NULL AND j.overlap = 'skip') THEN 'waiting'
                WHEN j.max_running <= n.count OR q.max_running <= m.count THEN 'limit'
                WHEN NOT r.has_slot THEN 'no_slot'
                ELSE 'behind' END AS reason,
           CASE WHEN NOT r.able THEN {schema}_internal.missing_runner(
               l.queue, CASE j.handler WHEN 'python' THEN j.target ->> 'python' END,
               CASE l.scope_kind WHEN 'host' THEN 'host=' || l.scope_id || coalesce(j.on, '{}') ELSE j.on END, r.live)
           END AS missing,
           format('no live runner of queue %s has a free slot', l.queue) AS no_slot
    FROM late l
    LEFT JOIN {schema}.jobs j ON j.name = l.job_name
    LEFT JOIN {schema}.queues q ON q.name = l.queue
    LEFT JOIN by_scope b
        ON (b.job_name, b.scope_kind, b.scope_id) = (l.job_name, l.scope_kind, l.scope_id)
    LEFT JOIN by_job n ON n.job_name = l.job_name
    LEFT JOIN by_queue m ON m.queue = l.queue
    CROSS JOIN LATERAL (
        SELECT coalesce(bool_or(a.has_labels), false) AS able,
               coalesce(bool_or(a.has_slot AND a.has_labels), false) AS has_slot,
               min(a.failing) FILTER (WHERE a.is_failing AND a.has_labels) AS failing,
               string_agg(DISTINCT array_to_string(a.labels, ','), '; ') AS live
        FROM (SELECT a.*, (j.on IS NULL OR j.handler = 'external' OR j.on <@ a.labels)
                        AND (l.scope_kind <> 'host' OR 'host=' || l.scope_id = ANY (a.labels)) AS has_labels FROM alive a) a
        WHERE l.queue = ANY (a.queues)
          AND (j.handler <> 'python' OR j.target ->> 'python' = ANY (a.handlers))) r
)
SELECT x.job_name, x.scope_kind, x.scope_id, x.plan_time, x.due_at,
       {schema}.db_now() - x.due_at AS overdue_for, x.reason,
       CASE x.reason WHEN 'waiting' THEN x.running_id END AS blocked_by, x.id, x.queue,
       coalesce(x.lease || '; ', '') || CASE x.reason
           WHEN 'database' THEN format('this is not the database in which the ledger was created (%s); see cronledger accept-database',
                                  {schema}_internal.other_database())
           WHEN 'retired' THEN 'the job is retired'
           WHEN 'spec_error' THEN coalesce(x.spec_error, 'its definition was corrected, and it is not planned again yet')
           WHEN 'paused' THEN format('paused by %s%s', x.paused_by, ': ' || x.paused_reason)
           WHEN 'queue_paused' THEN format('queue %s paused by %s%s', x.queue, x.queue_paused_by,
                                           ': ' || x.queue_paused_reason)
           WHEN 'external' THEN format('no worker%s has claimed it yet', ' with the labels ' || array_to_string(x.on, ','))
           WHEN 'no_runner' THEN coalesce(x.missing, 'a live runner can run it, and has not taken it up yet')
           WHEN 'lease_expired' THEN
               CASE WHEN x.is_stealable AND x.handler = 'external' THEN 'no worker has claimed it again yet'
                    WHEN x.is_stealable AND NOT x.able THEN x.missing
                    WHEN x.is_stealable AND NOT x.has_slot THEN x.no_slot
                    WHEN x.is_stealable THEN 'live runners have not taken it over yet' || coalesce(x.failing, '')
                    WHEN EXISTS (SELECT FROM alive a WHERE a.is_replica) THEN 'live replicas have not ended it yet'
                    ELSE 'no replica is alive to end it' END
           WHEN 'waiting' THEN format('execution %s of this scope is RUNNING%s', x.running_id,
               CASE WHEN x.running_until <= {schema}.db_now()
                    THEN ', but its lease ended at ' || {schema}_internal.utc_text(x.running_until) END)
           WHEN 'limit' THEN format('as many RUNNING as max_running allows (job: %s, queue: %s)',
                                    coalesce(x.max_running::text, 'any'),
                                    coalesce(x.queue_max_running::text, 'any'))
           WHEN 'no_slot' THEN x.no_slot
           ELSE 'live runners have free slots: they have a backlog, or hang' || coalesce(x.failing, '') END AS detail,
       x.owner, x.labels
FROM explained x
UNION ALL
SELECT p.job_name, p.scope_kind, NULL, NULL, p.due_at, {schema}.db_now() - p.due_at,
       CASE WHEN p.unasked THEN 'no_provider' ELSE 'provider_failed' END, NULL, NULL, p.queue,
       CASE WHEN p.unasked THEN
           format('no live runner calls its scope provider: %s',
                  CASE WHEN p.asked_at IS NULL THEN 'it was never called'
                       ELSE format('it was last called at %s by %s', {schema}_internal.utc_text(p.asked_at), p.asked_by) END)
       ELSE format('its scope provider has failed %s times since its last success, most recently at %s on %s',
                   p.failures, {schema}_internal.utc_text(p.asked_at), p.asked_by) END || coalesce(': ' || p.error, ''),
       p.owner, p.labels
FROM providers p
WHERE p.due_at < {schema}.db_now() - interval '2 s'
UNION ALL
SELECT NULL, NULL, NULL, NULL, min(d.due_at), {schema}.db_now() - min(d.due_at), 'delivery', NULL, NULL, NULL,
       format('deliveries of alerts to the channel %s that no replica has started: %s', d.channel, count(*)), NULL, NULL
FROM {schema}.deliveries d
WHERE d.due_at < {schema}.db_now() - interval '2 s'
  AND NOT EXISTS (SELECT FROM {schema}.channels c WHERE c.name = d.channel AND c.paused_at IS NOT NULL)
GROUP BY d.channel;
COMMENT ON VIEW {schema}.overdue IS 'Executions that have been due for more than 2 s and have not started, and RUNNING executions whose lease ended more than 2 s ago, with the reason. Also one row for each channel whose deliveries of alerts wait for a replica.';
COMMENT ON COLUMN {schema}.overdue.job_name IS 'The job; NULL: the row is about deliveries of alerts.';
COMMENT ON COLUMN {schema}.overdue.scope_kind IS 'Kind of the scope; NULL: as of job_name.';
COMMENT ON COLUMN {schema}.overdue.scope_id IS 'Id of the scope; NULL: the row is about the scope provider of the job, or about deliveries.';
COMMENT ON COLUMN {schema}.overdue.plan_time IS 'The first plan_time that has not started; NULL: none has been planned yet.';
COMMENT ON COLUMN {schema}.overdue.due_at IS 'When it became due: after a wait for required jobs, when their gate opened. For a RUNNING execution: when its lease ended. For a scope provider: when it began to fail, or when it was last called.';
COMMENT ON COLUMN {schema}.overdue.overdue_for IS 'How long ago that was.';
COMMENT ON COLUMN {schema}.overdue.reason IS 'database (not the ledger''s own), retired, spec_error, paused, queue_paused, external (a worker has to claim it), no_runner, waiting (overlap), limit (max_running), no_slot, or behind: there are live runners with free slots. lease_expired: it is RUNNING, but its holder does not renew the lease, and nobody has taken it over or ended it. Of a scope provider: provider_failed, or no_provider (no runner calls it). delivery: deliveries of alerts wait.';
COMMENT ON COLUMN {schema}.overdue.blocked_by IS 'With reason waiting: id of the execution that is RUNNING.';
COMMENT ON COLUMN {schema}.overdue.id IS 'Id of the execution that is PENDING, awaits its retry, or is RUNNING without a lease; NULL: the schedule itself is due.';
COMMENT ON COLUMN {schema}.overdue.queue IS 'Its queue; NULL: the row is about deliveries.';
COMMENT ON COLUMN {schema}.overdue.detail IS 'The reason in words, for people.';
COMMENT ON COLUMN {schema}.overdue.owner IS 'Current owner of the job; NULL: it has none.';
COMMENT ON COLUMN {schema}.overdue.labels IS 'Current labels of the job; NULL or empty: it has none.';
