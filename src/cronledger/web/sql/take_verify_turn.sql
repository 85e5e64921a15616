-- Takes the turn to verify for the page, until the session ends: that of the oldest session of this role and name.
-- A session and not a lock, because any login may take an advisory lock. One row: is_taken is false if another session
-- has the turn. No lock.
SELECT NOT EXISTS (
    SELECT FROM pg_stat_activity a JOIN pg_stat_activity own ON own.pid = pg_backend_pid()
    WHERE (a.datid, a.usesysid, a.application_name) = (own.datid, own.usesysid, own.application_name)
      AND (a.backend_start, a.pid) < (own.backend_start, own.pid)) AS is_taken
