-- Takes the turn of a step for deadlines, and locks the jobs whose deadlines have to be computed. The first row has
-- no job. Lock: the turn, not waited for; jobs FOR SHARE SKIP LOCKED. Zero rows: another process has its turn.
SELECT d.job_name, d.through, d.now_, d.upto, d.after_kind, d.after_id, d.following
FROM {schema}_internal.lock_deadlines(%(most)s) d
