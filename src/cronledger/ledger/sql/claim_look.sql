-- The statement with which a claim begins: claims executions that exist and are due, locks the schedules that have
-- to be planned, and reads what the decision about them depends on. At most one execution for each token; a token
-- that was not used can be offered again.
-- Lock: schedules, limited queues and jobs, executions, all SKIP LOCKED, until the end of the transaction
-- (see the function). Always one row. An execution with `refused` was not claimed, because the database does not
-- accept one of its values. `pauses`: see the function.
SELECT l.since, l.existing, l.schedules, l.locked_queues, l.locked_jobs, l.jobs, l.queue_room, l.running, l.now,
       l.retirements, l.window_starts, l.pauses, l.pause_at, l.planned_skips, l.absences, l.reports,
       l.unreported, l.boots, l.more
FROM {schema}_internal.claim_look(
    %(runner)s, %(queues)s::text[], %(kinds)s::text[], %(functions)s::text[], %(labels)s::text[],
    %(tokens)s::uuid[], %(trusted_since)s::timestamptz, %(sql_commands)s::boolean, %(jobs_not_to_run)s::text[], %(max_rows)s::integer,
    %(jobs_not_to_plan)s::text[], %(max_due)s::integer, %(max_woken)s::integer, %(ahead)s::interval,
    %(due_from)s::timestamptz) l
