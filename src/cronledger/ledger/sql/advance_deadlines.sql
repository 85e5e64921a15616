-- Moves the cursors of jobs with deadlines, notes how far passes over their scopes have come, and deletes the cursors
-- of jobs that have no deadlines any more. Lock: rows of deadline_cursors, whose jobs lock_deadlines has locked. Always
-- one row.
SELECT {schema}_internal.advance_deadlines(
    %(jobs)s::text[], %(throughs)s::timestamptz[], %(nexts)s::timestamptz[], %(uptos)s::timestamptz[],
    %(after_kinds)s::text[], %(after_ids)s::text[], %(followings)s::timestamptz[], %(ended)s::text[])
