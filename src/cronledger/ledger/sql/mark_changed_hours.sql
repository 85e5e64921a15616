-- Marks the hours whose executions have changed, and moves the mark of what was seen. One row: where the next call
-- goes on; NULL: all changes are marked, or another process marks them.
-- Lock: the turn of the roll-up (not waited for), then rows of changed_hours and roll_up_state.
SELECT {schema}_internal.mark_changed_hours(%(after)s::text::xid8, %(most)s) AS upto
