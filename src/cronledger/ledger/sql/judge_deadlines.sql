-- Judges deadlines that are past, and returns at how many it looked. Lock: rows of deadlines, deadline_breaches and
-- deadline_months, after the turn of lock_deadlines. Always one row.
SELECT {schema}_internal.judge_deadlines(%(most)s)
