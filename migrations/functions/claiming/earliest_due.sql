-- What a poll searches for. A poll is the one statement of a check-in, and an idle replica sends little else:
-- earliest_due returns when the replica has to claim, left_behind what its sweeper has to repair.
-- plpgsql, because it keeps its plans. The settings of the planner are those of a step, because a check-in
-- has no transaction that could set them.

-- The conditions of a claim that stay as they are until somebody writes: queues, pauses, kinds, functions, labels. Those
-- that the next end of an execution may change (limits, overlap) are left to the claim, which repeats all of them.
-- Of each job only the first waiting execution counts. If its own queue and the queue of the job are both left
-- to others, then later ones probably are as well, and to be sure would mean to read all of them. Of a paused
-- job the first hundred since the pause are read, because one of them may have been forced to start.
CREATE OR REPLACE FUNCTION {schema}_internal.earliest_due(
    of_queues text[], of_kinds text[], of_functions text[], of_labels text[], sql_commands boolean,
    excluded_jobs text[], due_from timestamptz)
RETURNS timestamptz LANGUAGE plpgsql STABLE
SET jit = off SET plan_cache_mode = force_generic_plan SET seq_page_cost = 1000 AS $$
BEGIN
    RETURN (
        SELECT least(
            (SELECT n.due FROM {schema}_internal.next_schedule(of_queues, of_labels, excluded_jobs, due_from) n),
            (SELECT min(p.from_at) FROM {schema}.pauses p WHERE p.begun_at IS NULL AND p.ended_at IS NULL),
            (SELECT min(u.at) FROM {schema}.unsettled_pauses u),
            (SELECT min(n.next_attempt_at) FROM {schema}_internal.waiting_jobs() d
             CROSS JOIN LATERAL (
                 SELECT j.name, j.queue, j.paused_at FROM {schema}.jobs j
                 WHERE j.name = d.job_name AND j.retired_at IS NULL AND j.handler = ANY (of_kinds)
                   AND (j.handler <> 'python'
                        OR j.target ->> 'python' IN (SELECT f.name FROM unnest(of_functions) f(name)))
                   AND (j.handler <> 'command' OR sql_commands OR j.source IS NOT NULL)
                   AND (j.on IS NULL OR j.on <@ of_labels)
                   AND j.name NOT IN (SELECT h.job FROM unnest(excluded_jobs) h(job)) LIMIT 1) j
             CROSS JOIN LATERAL (
                 SELECT f.next_attempt_at, f.queue FROM (
                     SELECT e.*, row_number() OVER (ORDER BY e.next_attempt_at) AS place FROM (
                         SELECT e.next_attempt_at, e.queue, e.trigger, e.status FROM {schema}.executions e
                         WHERE e.job_name = j.name AND e.next_attempt_at > coalesce(j.paused_at, '-infinity')
                           AND (e.scope_kind <> 'host' OR 'host=' || e.scope_id = ANY (of_labels))
                         ORDER BY e.next_attempt_at LIMIT CASE WHEN j.paused_at IS NULL THEN 1 ELSE 100 END) e) f
                 WHERE j.paused_at IS NULL OR (f.trigger = 'manual' AND f.status = 'PENDING') OR f.place = 100
                 ORDER BY f.next_attempt_at LIMIT 1) n
             WHERE EXISTS (SELECT FROM {schema}_internal.open_queues(of_queues) o
                           WHERE o.name IN (j.queue, n.queue)))));
END $$;
COMMENT ON FUNCTION {schema}_internal.earliest_due(text[], text[], text[], text[], boolean, text[], timestamptz) IS 'Returns when a runner of these abilities has to claim: the earliest instant at which a schedule or a waiting execution is due for it, or a planned pause begins. An instant in the past: at once, although the claim may find that all of it is blocked. NULL: nothing is planned. due_from: no schedule is due before; NULL: unknown. Locks nothing.';
