-- Returns when the next step for deadlines has something to do. No lock. Always one row; NULL: nothing is planned.
SELECT {schema}_internal.next_deadline()
