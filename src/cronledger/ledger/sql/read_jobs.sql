-- Returns what a claim needs of the jobs whose schedules it holds, and the room that is left in limited
-- ones. A statement of its own after the locks: a join in the locking statement would combine a fresh
-- schedule row with an old job row. revision_id: the newest revision; NULL: its row in job_revisions is
-- missing. Zero rows for a job: it was deleted.
SELECT j.name, j.revision,
       (SELECT r.id FROM {schema}.job_revisions r
        WHERE r.job_name = j.name AND r.revision = j.revision) AS revision_id,
       j.retired_at, j.paused_at, j.paused_until, j.handler,
       j.target ->> 'python' AS function, j.source IS NULL AS from_sql, j.spec_error,
       (SELECT l.room FROM {schema}_internal.job_room(j.name, j.max_running) l) AS room
FROM {schema}.jobs j
WHERE j.name = ANY (%(jobs)s::text[])
