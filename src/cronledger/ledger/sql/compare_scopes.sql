-- Returns whether the planned scopes of the job differ from a list, which is given by its digest: the
-- SHA-256 of all scope_ids in their order, each after its length. Reads each schedule of the job once.
-- No lock: an edit that commits meanwhile is seen the next time. Zero rows: the job does not exist, is
-- retired, or has another scope_kind; then its scopes are not the provider's.
SELECT d.digest <> %(digest)s::text
FROM {schema}.jobs j
CROSS JOIN LATERAL (
    SELECT CASE WHEN bool_and(p.scope_kind = j.scope_kind) IS FALSE THEN ''
           ELSE encode(sha256(convert_to(
               coalesce(string_agg(length(p.scope_id) || ':' || p.scope_id, ''), ''), 'UTF8')), 'hex')
           END AS digest
    FROM (SELECT s.scope_kind, s.scope_id FROM {schema}.schedules s
          WHERE s.job_name = j.name AND (s.retired_at IS NULL OR s.returned_at IS NOT NULL)
          ORDER BY s.scope_kind, s.scope_id) p) d
WHERE j.name = %(job)s AND j.retired_at IS NULL AND j.scope_kind = %(kind)s
