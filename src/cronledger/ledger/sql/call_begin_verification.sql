-- Records the beginning of a run of verify. One row: its id.
-- Lock: the old rows of verification_runs that it deletes.
SELECT {schema}_internal.begin_verification(
    %(job)s::text, %(from_)s::timestamptz, %(to)s::timestamptz, %(version)s::text, %(requested_by)s::text) AS id
