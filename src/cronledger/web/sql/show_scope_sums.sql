-- Sums the counted hours of scopes of a job since an instant: the first scopes by kind and id whose id contains a text.
-- NULL: any text. No lock. Always one row.
SELECT coalesce(sum(h.success), 0)::bigint AS success, coalesce(sum(h.failed), 0)::bigint AS failed,
       coalesce(sum(h.cancelled), 0)::bigint AS cancelled,
       (sum(h.duration_sum) / nullif(sum(h.durations), 0))::double precision AS average_ms, max(h.longest) AS longest_ms
FROM (
    SELECT v.scope_kind, v.scope_id FROM {schema}.verify_schedules v
    WHERE v.job_name = %(job)s::text AND (v.retired_at IS NULL OR v.returned_at IS NOT NULL)
      AND (%(search)s::text IS NULL OR strpos(lower(v.scope_id), lower(%(search)s::text)) > 0)
    ORDER BY v.scope_kind, v.scope_id LIMIT %(max_scopes)s
) s
CROSS JOIN LATERAL (
    SELECT sum(e.success) AS success, sum(e.failed) AS failed, sum(e.cancelled) AS cancelled,
           sum(e.duration_ms_sum) AS duration_sum, sum(e.durations) AS durations, max(e.duration_ms_max) AS longest
    FROM {schema}.execution_hours e
    WHERE (e.job_name, e.scope_kind, e.scope_id) = (%(job)s::text, s.scope_kind, s.scope_id)
      AND e.hour >= %(since)s::timestamptz
) h
