-- Records the end of a run of verify. One row: whether it had not ended yet.
-- Lock: the row of the run.
SELECT {schema}_internal.end_verification(
    run => %(run)s::bigint, outcome => %(outcome)s::text, error => %(error)s::text,
    checked_after => %(after)s::timestamptz, checked_through => %(through)s::timestamptz,
    schedules => %(schedules)s::bigint, plan_times => %(plan_times)s::bigint,
    executions => %(executions)s::bigint, skips => %(skips)s::bigint, behind => %(behind)s::bigint,
    violations => %(violations)s::bigint, accepted => %(accepted)s::bigint, kinds => %(kinds)s::jsonb) AS ended
