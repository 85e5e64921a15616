-- Returns the time of the database, the last plan_time whose rows may have been pruned (NULL: none), and the
-- state of planning of one scope. It must be read before the rows of a day: what the cursor accounts for is
-- then in each later statement. No lock. Zero rows: the job does not have this scope.
SELECT {schema}.db_now() AS now, {schema}.pruned_through() AS pruned_through, s.planned_through,
       s.planned_revision, s.parked, s.created_at, s.queue, s.retirements, s.returns, s.boots
FROM {schema}.verify_schedules s
WHERE (s.job_name, s.scope_kind, s.scope_id) = (%(job)s, %(kind)s, %(scope)s)
