-- Gives jobs with `every` their hosts, and wakes what absent hosts have not started: see the function. Always one row.
-- Lock: the turn of hosts, not waited for; then hosts, SKIP LOCKED, jobs, and schedules.
SELECT f.appeared, f.returned, f.retired, f.absent
FROM {schema}_internal.follow_hosts(%(retire_after)s::interval) f
