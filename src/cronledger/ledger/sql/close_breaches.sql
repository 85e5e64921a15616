-- Closes open breaches whose deadline was met late, and returns at how many it looked. Lock: rows of
-- deadline_breaches and deadline_months, after the turn of lock_deadlines. Always one row.
SELECT {schema}_internal.close_breaches(%(most)s)
