-- Schedules that an edit woke are kept apart from those that are due, so that a claim can take some of
-- each: 100,000 of the first kind would otherwise stand in front of a job that is due each second.
ALTER TABLE {schema}.schedules ADD COLUMN woken boolean NOT NULL DEFAULT false;
COMMENT ON COLUMN {schema}.schedules.woken IS 'The schedule is new, or it or its job was edited since it was planned: a claim has to plan it, whenever it is due.';
DROP INDEX {schema}.schedules_due;
CREATE INDEX schedules_due ON {schema}.schedules (queue, next_due_at)
    WHERE next_due_at IS NOT NULL AND NOT woken;
CREATE INDEX schedules_woken ON {schema}.schedules (queue, job_name, scope_kind, scope_id) WHERE woken;

CREATE TABLE {schema}.scope_providers (
    job_name      text COLLATE "C" PRIMARY KEY,
    asked_at      timestamptz NOT NULL,
    asked_by      text NOT NULL,
    answered_at   timestamptz,
    failures      bigint NOT NULL DEFAULT 0 CHECK (failures >= 0),
    failing_since timestamptz,
    error         text,
    CHECK ((failures = 0) = (error IS NULL) AND (failures = 0) = (failing_since IS NULL))
);
COMMENT ON TABLE {schema}.scope_providers IS 'How the last call of each scope provider ended, by job. A job whose provider was never asked has no row.';
COMMENT ON COLUMN {schema}.scope_providers.job_name IS 'The job whose scopes it answers.';
COMMENT ON COLUMN {schema}.scope_providers.asked_at IS 'When its last call ended.';
COMMENT ON COLUMN {schema}.scope_providers.asked_by IS 'Id of the runner that called it.';
COMMENT ON COLUMN {schema}.scope_providers.answered_at IS 'When it last returned a list of scopes; NULL: it never did.';
COMMENT ON COLUMN {schema}.scope_providers.failures IS 'Calls that have failed since then.';
COMMENT ON COLUMN {schema}.scope_providers.failing_since IS 'When the first of them failed.';
COMMENT ON COLUMN {schema}.scope_providers.error IS 'Why the last call failed; NULL: it did not.';
CREATE INDEX jobs_provided ON {schema}.jobs (name)
    WHERE scopes IS NULL AND scope_kind <> 'global' AND retired_at IS NULL;
