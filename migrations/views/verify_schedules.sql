-- The views that verify reads, for roles that may not read tables.
CREATE OR REPLACE VIEW {schema}.verify_schedules AS
SELECT t.job_name, t.scope_kind, t.scope_id, t.planned_through, t.planned_revision, t.parked,
       t.retired_at, t.returned_at, t.created_at, t.queue, t.next_plan_time, t.next_due_at,
       ARRAY(SELECT h.retired_at FROM {schema}.scope_retirements h
             WHERE (h.job_name, h.scope_kind, h.scope_id) = (t.job_name, t.scope_kind, t.scope_id)
             ORDER BY h.retired_at) AS retirements,
       ARRAY(SELECT h.returned_at FROM {schema}.scope_retirements h
             WHERE (h.job_name, h.scope_kind, h.scope_id) = (t.job_name, t.scope_kind, t.scope_id)
             ORDER BY h.retired_at) AS returns,
       CASE t.scope_kind WHEN 'host' THEN ARRAY(
           SELECT a.from_at FROM {schema}.host_absences a WHERE a.host = t.scope_id
           UNION ALL SELECT o.checked_in_at FROM {schema}.hosts o WHERE o.name = t.scope_id ORDER BY 1) END AS absent_from,
       CASE t.scope_kind WHEN 'host' THEN ARRAY(
           SELECT a.until_at FROM {schema}.host_absences a WHERE a.host = t.scope_id
           UNION ALL SELECT NULL FROM {schema}.hosts o WHERE o.name = t.scope_id ORDER BY 1) END AS absent_until,
       CASE t.scope_kind WHEN 'host' THEN ARRAY(
           SELECT b.plan_time FROM {schema}.host_boots b
           WHERE b.host = t.scope_id AND t.job_name = ANY (b.jobs) ORDER BY b.plan_time) END AS boots,
       CASE t.scope_kind WHEN 'host' THEN ARRAY(
           SELECT b.checked_in_at - b.booted_at FROM {schema}.host_boots b
           WHERE b.host = t.scope_id AND t.job_name = ANY (b.jobs) ORDER BY b.plan_time) END AS noticed_after
FROM {schema}.schedules t;
COMMENT ON VIEW {schema}.verify_schedules IS 'State of planning of every (job, scope), for verify.';
COMMENT ON COLUMN {schema}.verify_schedules.job_name IS 'The job.';
COMMENT ON COLUMN {schema}.verify_schedules.scope_kind IS 'Kind of the scope: jobs.scope_kind.';
COMMENT ON COLUMN {schema}.verify_schedules.scope_id IS 'Id of the scope.';
COMMENT ON COLUMN {schema}.verify_schedules.planned_through IS 'The cursor: every plan_time up to it has an execution or lies in a skip. It only grows.';
COMMENT ON COLUMN {schema}.verify_schedules.planned_revision IS 'Revision in force at the cursor. If job_revisions has later ones, the cursor holds for this one only.';
COMMENT ON COLUMN {schema}.verify_schedules.parked IS 'Why the row is not in the index of due rows; NULL: it is in the index.';
COMMENT ON COLUMN {schema}.verify_schedules.retired_at IS 'When the scope was last retired, until the cursor passes its return; NULL: the scope is planned.';
COMMENT ON COLUMN {schema}.verify_schedules.returned_at IS 'When the scope returned. Both are cleared when the cursor passes this instant.';
COMMENT ON COLUMN {schema}.verify_schedules.created_at IS 'When the scope was created; its history starts here.';
COMMENT ON COLUMN {schema}.verify_schedules.queue IS 'Queue of the job.';
COMMENT ON COLUMN {schema}.verify_schedules.next_plan_time IS 'The first plan_time after the cursor, if it is known.';
COMMENT ON COLUMN {schema}.verify_schedules.next_due_at IS 'When the next claim plans this row; NULL: the row is parked.';
COMMENT ON COLUMN {schema}.verify_schedules.retirements IS 'When the scope was retired, each time: scope_retirements.retired_at.';
COMMENT ON COLUMN {schema}.verify_schedules.returns IS 'When the scope returned from each of these retirements; NULL: it is still retired.';
COMMENT ON COLUMN {schema}.verify_schedules.absent_from IS 'Of a host: when each of its absences began. The last one begins with its last check-in, once that no longer counts. NULL: the scope is not a host.';
COMMENT ON COLUMN {schema}.verify_schedules.absent_until IS 'Of a host: when it checked in again, of each absence; NULL: it has not.';
COMMENT ON COLUMN {schema}.verify_schedules.boots IS 'Of a host: the plan_times that its boots gave the job with the schedule @reboot. NULL: the scope is not a host.';
COMMENT ON COLUMN {schema}.verify_schedules.noticed_after IS 'Of a host: how long after each of these boots a replica of it first checked in.';
