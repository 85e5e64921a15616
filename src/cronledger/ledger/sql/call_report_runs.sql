-- Reports these runs of observed jobs, which are sorted by job, and returns how many of the reports are new: a start, an
-- end, or both. Locks: the schedules of the jobs, by key. Always one row.
WITH fresh AS MATERIALIZED (
    SELECT u.* FROM unnest(
        %(jobs)s::text[], %(run_keys)s::text[], %(started)s::timestamptz[], %(ended)s::timestamptz[], %(errors)s::text[],
        %(outputs)s::text[]) WITH ORDINALITY AS u (job, run_key, started_at, ended_at, error, output, number)
    WHERE NOT EXISTS (
        SELECT FROM {schema}.report_status r
        WHERE (r.job_name, r.scope_kind, r.scope_id, r.run_key) = (u.job, 'global', 'global', u.run_key)
          AND (r.ended_at IS NOT NULL OR u.ended_at IS NULL))
    ORDER BY u.number
)
SELECT count(CASE
    WHEN f.ended_at IS NULL THEN {schema}.observe_start(f.job, f.run_key, f.started_at, source => %(source)s)
    ELSE {schema}.observe_end(f.job, f.run_key, error => f.error, output => f.output, ended_at => f.ended_at,
                              started_at => f.started_at, source => %(source)s) END) AS reported
FROM fresh f
