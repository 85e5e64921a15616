-- Lists the jobs that are or were observed and have the label pg_cron, which is the jobid of their job in pg_cron, of
-- one source or of all (NULL). has_global: a run can be reported, because the scope global/global is not retired. Runs
-- that started after `since` may not be reported yet: an hour before the newest one that is, and an hour after what
-- check_report refuses. open: the runs without an end. No lock. Zero rows: none.
SELECT j.name, (j.labels ->> 'pg_cron')::bigint AS jobid, j.handler = 'observed' OR j.observed AS observed,
       EXISTS (SELECT FROM {schema}.verify_schedules s
               WHERE (s.job_name, s.scope_kind, s.scope_id) = (j.name, 'global', 'global')
                 AND (s.retired_at IS NULL OR s.returned_at IS NOT NULL)) AS has_global,
       greatest({schema}.db_now() - interval '7 days' + interval '1 hour', {schema}.pruned_through(), (
           SELECT max(r.started_at) - interval '1 hour' FROM {schema}.report_status r
           WHERE (r.job_name, r.scope_kind, r.scope_id) = (j.name, 'global', 'global')
             AND r.run_key ~ '^pg_cron:[0-9]{1,18}$')) AS since,
       ARRAY(SELECT substr(r.run_key, 9)::bigint FROM {schema}.report_status r
             WHERE (r.job_name, r.scope_kind, r.scope_id) = (j.name, 'global', 'global')
               AND r.ended_at IS NULL AND r.run_key ~ '^pg_cron:[0-9]{1,18}$') AS open
FROM {schema}.job_details j
WHERE j.labels ->> 'pg_cron' ~ '^[0-9]{1,18}$' AND j.retired_at IS NULL
  AND (%(source)s::text IS NULL OR j.source = %(source)s::text)
  AND EXISTS (SELECT FROM {schema}.job_history h
              WHERE h.job_name = j.name AND {schema}_internal.may_be_observed(h.definition))
ORDER BY j.name COLLATE "C"
