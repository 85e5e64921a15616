-- Moves the cursors of jobs with deadlines, and deletes those of jobs that have none any more. Lock: rows of
-- deadline_cursors, whose jobs lock_deadlines has locked. Always one row.
SELECT {schema}_internal.advance_deadlines(
    %(jobs)s::text[], %(throughs)s::timestamptz[], %(nexts)s::timestamptz[], %(ended)s::text[])
