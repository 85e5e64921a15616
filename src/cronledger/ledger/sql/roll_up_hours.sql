-- Counts marked hours that are over. One row: how many; 0: no more are left.
-- Lock: the turn of the roll-up (not waited for), then rows of changed_hours and rolled_up_hours.
SELECT {schema}_internal.roll_up_hours(%(most)s) AS counted
