-- Records the check-in of a runner, and returns what it has to know, so that it sends nothing else while it
-- is idle: the next stale lease; the next pause that ends; when it has to claim (`due`); why this is not the
-- ledger's own database (`refused`); what a crash left behind, of at most `most` of each kind (NULL: not
-- examined); when a gate has to be checked (`gates`), and a
-- deadline judged (`deadline`); the live runners of its queues that read
-- schedules by other versions (`others`, a JSON array), with the claims that their own check-ins reported;
-- whether alerts have to be raised (`alerts`); and the process whose check-in under the same name was the last one,
-- if that was another live one (`namesake`).
-- Reads every RUNNING row, so it runs every few seconds and not in each claim.
-- Lock: its own runners row, and that of its host in hosts; after a boot of the host also schedules, SKIP LOCKED. Always one row; NULL: there is nothing of that kind. Raises CL006 in another
-- ledger than the one in which the runner began.
WITH seen AS (
    INSERT INTO {schema}.runners AS r
        (id, host, pid, version, state, queues, slots, running, started_at, heartbeat_at, stale_after,
         clock_skew, fingerprint, handlers, diagnostics, deploy, labels)
    SELECT %(runner)s, %(host)s, %(pid)s, %(version)s, %(state)s, %(queues)s::text[], %(slots)s,
           %(running)s, {schema}.db_now(), {schema}.db_clock(), {schema}.db_clock() + %(ttl)s::interval,
           %(clock_skew)s::interval, %(fingerprint)s::jsonb, %(handlers)s::text[], %(diagnostics)s::jsonb,
           %(deploy)s::bigint, %(labels)s::text[]
    FROM {schema}_internal.require_ledger(%(ledger)s::uuid)
    CROSS JOIN LATERAL {schema}_internal.note_host(%(host)s, %(runner)s, %(labels)s::text[], %(ttl)s::interval, %(boot_id)s, %(uptime)s::interval)
    ON CONFLICT (id) DO UPDATE
    SET host = EXCLUDED.host, pid = EXCLUDED.pid, version = EXCLUDED.version, state = EXCLUDED.state,
        queues = EXCLUDED.queues, slots = EXCLUDED.slots, running = EXCLUDED.running,
        heartbeat_at = {schema}.db_clock(), stale_after = {schema}.db_clock() + %(ttl)s::interval,
        clock_skew = EXCLUDED.clock_skew, fingerprint = EXCLUDED.fingerprint,
        handlers = EXCLUDED.handlers, diagnostics = EXCLUDED.diagnostics, deploy = EXCLUDED.deploy,
        labels = EXCLUDED.labels
)
SELECT {schema}.db_now() AS now,
       (SELECT min(e.stale_after) FROM {schema}.executions e WHERE e.status = 'RUNNING') AS stale,
       (SELECT min(j.paused_until) FROM {schema}.jobs j WHERE j.paused_until IS NOT NULL) AS resumes,
       {schema}_internal.earliest_due(
           %(queues)s::text[], %(kinds)s::text[], %(handlers)s::text[], %(labels)s::text[],
           %(sql_commands)s::boolean, %(excluded_jobs)s::text[], %(due_from)s::timestamptz) AS due,
       {schema}_internal.other_database() AS refused,
       {schema}_internal.left_behind(%(most)s::integer) AS left_behind,
       (SELECT min(g.check_at) FROM {schema}.gates g WHERE g.check_at IS NOT NULL) AS gates,
       {schema}_internal.next_deadline() AS deadline,
       (SELECT jsonb_agg(jsonb_build_object(
            'id', o.id, 'queues', o.queues, 'labels', o.labels, 'handlers', o.handlers, 'fingerprint', o.fingerprint,
            'seen', o.heartbeat_at, 'ttl_s', extract(epoch FROM o.stale_after - o.heartbeat_at),
            'free', o.slots - o.running, 'database', o.diagnostics -> 'database',
            'claimed_s_ago', o.diagnostics -> 'last_tick_age_s',
            'dispatcher', o.diagnostics #> '{loops,dispatcher}') ORDER BY o.id)
        FROM {schema}.runners o
        WHERE o.id <> %(runner)s AND o.state = 'running' AND o.stale_after > {schema}.db_now()
          AND o.queues && %(queues)s::text[]
          AND (o.fingerprint ->> 'tzdata', o.fingerprint ->> 'croniter') IS DISTINCT FROM
              (%(fingerprint)s::jsonb ->> 'tzdata', %(fingerprint)s::jsonb ->> 'croniter')) AS others,
       {schema}_internal.watches_alerts() AS alerts,
       -- As it was before this statement.
       (SELECT format('pid %%s on %%s', r.pid, r.host) FROM {schema}.runners r
        WHERE r.id = %(runner)s AND (r.host, r.pid) <> (%(host)s, %(pid)s) AND r.state <> 'stopped'
          AND r.stale_after > {schema}.db_now()) AS namesake
