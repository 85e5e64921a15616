-- Deletes the chunks of these attempts, whose output is in the row of their execution. It follows the write of their
-- ends in the same transaction. If a later attempt has begun, the attempt was lost, and its chunks stay.
-- Lock: the chunks. No rows.
DELETE FROM {schema}.output_chunks c
USING unnest(%(jobs)s::text[], %(kinds)s::text[], %(scopes)s::text[], %(plans)s::timestamptz[], %(ids)s::bigint[],
             %(attempts)s::integer[]) AS u(job, kind, scope, plan, id, attempt)
WHERE c.execution_id = u.id AND c.attempt = u.attempt
  AND NOT EXISTS (
      SELECT FROM {schema}.executions e
      WHERE (e.job_name, e.scope_kind, e.scope_id, e.plan_time) = (u.job, u.kind, u.scope, u.plan)
        AND e.plan_time BETWEEN %(first)s AND %(last)s AND e.attempt > u.attempt)
