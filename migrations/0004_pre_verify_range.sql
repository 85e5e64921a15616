-- Where history ends, as recorded: what verify cannot conclude from the partitions that are left, because
-- a partition that somebody dropped by hand looks like one that was dropped behind retention.
CREATE TABLE {schema}.pruned (
    singleton   boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    through     timestamptz CHECK (isfinite(through)),
    recorded_at timestamptz NOT NULL DEFAULT {schema}.db_now()
);
COMMENT ON TABLE {schema}.pruned IS 'How far maintain_partitions has dropped partitions and deleted skips.';
COMMENT ON COLUMN {schema}.pruned.singleton IS 'There is one row.';
COMMENT ON COLUMN {schema}.pruned.through IS 'Executions and skips with plan_times up to this instant may be gone; all later ones are kept. NULL: nothing was ever pruned.';
COMMENT ON COLUMN {schema}.pruned.recorded_at IS 'When it last moved.';
INSERT INTO {schema}.pruned DEFAULT VALUES;

-- A ledger of an earlier version has not recorded it. The oldest partition without a gap up to now may
-- have lost skips already, so its plan_times count as pruned once they may be behind a retention.
DO $seed$
BEGIN
    IF to_regprocedure('{schema}.partitions()') IS NOT NULL THEN
        UPDATE {schema}.pruned SET through = (
            SELECT max(p.before_plan_time) - interval '1 microsecond'
            FROM (SELECT q.*, lag(q.before_plan_time) OVER (ORDER BY q.from_plan_time) AS previous
                  FROM {schema}.partitions() q) p
            WHERE p.previous IS DISTINCT FROM p.from_plan_time
              AND p.before_plan_time < {schema}.db_now() - interval '1 day');
    END IF;
END $seed$;

CREATE SEQUENCE {schema}.acceptance_id AS bigint;
COMMENT ON SEQUENCE {schema}.acceptance_id IS 'Numbers acceptances.';
CREATE TABLE {schema}.acceptances (
    id                bigint PRIMARY KEY DEFAULT nextval('{schema}.acceptance_id'),
    kind              text COLLATE "C" NOT NULL,
    job_name          text COLLATE "C" NOT NULL,
    scope_kind        text COLLATE "C" NOT NULL,
    scope_id          text COLLATE "C" NOT NULL,
    plan_time         timestamptz NOT NULL CHECK (isfinite(plan_time)),
    through_plan_time timestamptz NOT NULL CHECK (isfinite(through_plan_time)),
    execution_id      bigint,
    reason            text NOT NULL CHECK (reason ~ '\S'),
    accepted_by       text NOT NULL,
    accepted_at       timestamptz NOT NULL DEFAULT {schema}.db_now(),
    withdrawn_by      text,
    withdrawn_at      timestamptz,
    CONSTRAINT acceptance_range CHECK (plan_time <= through_plan_time),
    CONSTRAINT withdrawn_columns CHECK ((withdrawn_at IS NULL) = (withdrawn_by IS NULL))
);
COMMENT ON TABLE {schema}.acceptances IS 'Violations that somebody has accepted, and why; written by accept_violation() and withdraw_acceptance().';
COMMENT ON COLUMN {schema}.acceptances.id IS 'What withdraw_acceptance() is given.';
COMMENT ON COLUMN {schema}.acceptances.kind IS 'Kind of the violation.';
COMMENT ON COLUMN {schema}.acceptances.job_name IS 'The job.';
COMMENT ON COLUMN {schema}.acceptances.scope_kind IS 'What the scope is.';
COMMENT ON COLUMN {schema}.acceptances.scope_id IS 'Which one it is.';
COMMENT ON COLUMN {schema}.acceptances.plan_time IS 'First plan_time for which the violation is accepted.';
COMMENT ON COLUMN {schema}.acceptances.through_plan_time IS 'Last plan_time for which it is accepted.';
COMMENT ON COLUMN {schema}.acceptances.execution_id IS 'Execution that the violation names; NULL: it names none.';
COMMENT ON COLUMN {schema}.acceptances.reason IS 'Why it is accepted.';
COMMENT ON COLUMN {schema}.acceptances.accepted_by IS 'The person who accepted it.';
COMMENT ON COLUMN {schema}.acceptances.accepted_at IS 'When it was accepted.';
COMMENT ON COLUMN {schema}.acceptances.withdrawn_by IS 'The person who withdrew the acceptance.';
COMMENT ON COLUMN {schema}.acceptances.withdrawn_at IS 'Since when it no longer holds; NULL: it holds.';
CREATE UNIQUE INDEX acceptances_hold ON {schema}.acceptances
    (job_name, scope_kind, scope_id, kind, plan_time, through_plan_time, coalesce(execution_id, 0))
    WHERE withdrawn_at IS NULL;
