-- Takes the turn to verify for the page, until the session ends. One row: is_taken is false if another session has it.
-- Locks: those of the function, which does not wait.
SELECT pg_try_advisory_lock(hashtextextended('{schema}' || '.verify_on_page', 0)) AS is_taken
