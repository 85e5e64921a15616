-- Writes the next chunk of the output of each of these attempts. Where an output is too long, the chunks from gap_from
-- to gap_through are replaced by one with gap_text. A chunk may be written again, after a COMMIT of unknown outcome.
-- One row for each attempt that was written: its token.
-- Lock: executions FOR NO KEY UPDATE in key order, SKIP LOCKED, as a heartbeat. The finish waits for it, so that it
-- deletes all chunks. A token that does not come back is busy or lost.
WITH held AS MATERIALIZED (
    SELECT u.*, e.id, e.attempt
    FROM (SELECT * FROM unnest(%(jobs)s::text[], %(kinds)s::text[], %(scopes)s::text[], %(plans)s::timestamptz[],
                               %(tokens)s::uuid[], %(numbers)s::integer[], %(texts)s::text[],
                               %(gaps_from)s::integer[], %(gaps_through)s::integer[], %(gap_texts)s::text[])
          LIMIT cardinality(%(tokens)s::uuid[]))
        AS u(job, kind, scope, plan, token, number, text, gap_from, gap_through, gap_text)
    JOIN {schema}.executions e
        ON (e.job_name, e.scope_kind, e.scope_id, e.plan_time) = (u.job, u.kind, u.scope, u.plan)
    WHERE e.plan_time BETWEEN %(first)s AND %(last)s
      AND e.lease_token = u.token AND e.status = (SELECT 'RUNNING')
    ORDER BY e.job_name, e.scope_kind, e.scope_id, e.plan_time
    FOR NO KEY UPDATE OF e SKIP LOCKED
), dropped AS (
    DELETE FROM {schema}.output_chunks c USING held h
    WHERE c.execution_id = h.id AND c.attempt = h.attempt AND c.number >= h.gap_from AND c.number < h.gap_through
), written AS (
    INSERT INTO {schema}.output_chunks (execution_id, attempt, number, written_at, text)
    SELECT h.id, h.attempt, v.number, {schema}.db_now(), v.text
    FROM held h CROSS JOIN LATERAL (VALUES (h.gap_through, h.gap_text), (h.number, h.text)) v(number, text)
    WHERE v.number IS NOT NULL
    ON CONFLICT (execution_id, attempt, number) DO UPDATE SET written_at = EXCLUDED.written_at, text = EXCLUDED.text
)
SELECT h.token FROM held h
