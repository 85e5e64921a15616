-- Alerts: jobs.notify declares which changes of state are sent to which channel. raise_alerts() tracks the states, and
-- writes each edge once (80_alerts.sql). NULL by default, as owner and labels.
ALTER TABLE {schema}.jobs ADD COLUMN notify jsonb CHECK (jsonb_typeof(notify) = 'array');
COMMENT ON COLUMN {schema}.jobs.notify IS 'Rules for alerts: a JSON array such as [{"channel": "ops", "on": ["failed", "recovered"], "after": 3, "remind": "4 hours"}]. NULL or empty: no alerts.';
CREATE INDEX jobs_notify ON {schema}.jobs (name) WHERE notify IS NOT NULL;

-- So that each run raises its alerts once, whenever it ended. Runs from before there were alerts raise none.
ALTER TABLE {schema}.verification_runs ADD COLUMN observed boolean NOT NULL DEFAULT true;
ALTER TABLE {schema}.verification_runs ALTER COLUMN observed SET DEFAULT false;
CREATE INDEX verification_runs_unobserved ON {schema}.verification_runs (finished_at, id) WHERE NOT observed;
COMMENT ON COLUMN {schema}.verification_runs.observed IS 'Whether raise_alerts() has read the result of the run.';

CREATE TABLE {schema}.tracked_states (
    channel        text COLLATE "C" NOT NULL,
    event          text COLLATE "C" NOT NULL,
    job_name       text COLLATE "C" NOT NULL DEFAULT '',
    scope_kind     text COLLATE "C" NOT NULL DEFAULT '',
    scope_id       text COLLATE "C" NOT NULL DEFAULT '',
    runner_id      text COLLATE "C" NOT NULL DEFAULT '',
    count          bigint NOT NULL DEFAULT 0 CHECK (count >= 0),
    since          timestamptz,
    last_alert_at  timestamptz,
    seen_plan_time timestamptz,
    execution_id   bigint,
    plan_time      timestamptz,
    summary        text NOT NULL DEFAULT '',
    details        jsonb NOT NULL DEFAULT '{}',
    PRIMARY KEY (job_name, scope_kind, scope_id, runner_id, event, channel)
);
CREATE INDEX tracked_states_open ON {schema}.tracked_states (last_alert_at) WHERE since IS NOT NULL;
COMMENT ON TABLE {schema}.tracked_states IS 'What alerts are about: one row for each channel, event and (job, scope) or runner for which the event holds or has been counted. Written by raise_alerts(). Open states are read through the view alert_states.';
COMMENT ON COLUMN {schema}.tracked_states.channel IS 'The channel to which changes are sent.';
COMMENT ON COLUMN {schema}.tracked_states.event IS 'failed, overdue, late, skipped, deadline, violation or runner_lost.';
COMMENT ON COLUMN {schema}.tracked_states.job_name IS 'The job; empty: the ledger.';
COMMENT ON COLUMN {schema}.tracked_states.scope_kind IS 'Kind of the scope; empty: the state is not about one.';
COMMENT ON COLUMN {schema}.tracked_states.scope_id IS 'Id of the scope; empty: the state is not about one.';
COMMENT ON COLUMN {schema}.tracked_states.runner_id IS 'The runner; empty: the state is not about one.';
COMMENT ON COLUMN {schema}.tracked_states.count IS 'How often the event has occurred in a row; 0: it does not hold.';
COMMENT ON COLUMN {schema}.tracked_states.since IS 'When the state was opened; NULL: it is not open.';
COMMENT ON COLUMN {schema}.tracked_states.last_alert_at IS 'When an alert or a reminder was last raised for the open state.';
COMMENT ON COLUMN {schema}.tracked_states.seen_plan_time IS 'With the event skipped: skips up to this plan_time have been observed.';
COMMENT ON COLUMN {schema}.tracked_states.execution_id IS 'The execution that the last occurrence is about; NULL: none.';
COMMENT ON COLUMN {schema}.tracked_states.plan_time IS 'The plan_time that the last occurrence is about; NULL: none.';
COMMENT ON COLUMN {schema}.tracked_states.summary IS 'The last occurrence, as a sentence.';
COMMENT ON COLUMN {schema}.tracked_states.details IS 'The last occurrence, for programs.';

CREATE SEQUENCE {schema}.alert_id AS bigint;
COMMENT ON SEQUENCE {schema}.alert_id IS 'Numbers raised_alerts.';
CREATE TABLE {schema}.raised_alerts (
    id           bigint PRIMARY KEY DEFAULT nextval('{schema}.alert_id'),
    at           timestamptz NOT NULL,
    event        text NOT NULL,
    kind         text NOT NULL CHECK (kind IN ('opened', 'closed', 'reminder')),
    channel      text COLLATE "C" NOT NULL,
    since        timestamptz NOT NULL,
    count        bigint NOT NULL,
    job_name     text COLLATE "C",
    scope_kind   text COLLATE "C",
    scope_id     text COLLATE "C",
    runner_id    text COLLATE "C",
    execution_id bigint,
    plan_time    timestamptz,
    summary      text NOT NULL,
    details      jsonb NOT NULL,
    owner        text,
    labels       jsonb,
    delivery_id  bigint
);
CREATE INDEX raised_alerts_at ON {schema}.raised_alerts (at, id);
CREATE INDEX raised_alerts_job ON {schema}.raised_alerts (job_name, at, id) WHERE job_name IS NOT NULL;
CREATE INDEX raised_alerts_undelivered ON {schema}.raised_alerts (channel, id) WHERE delivery_id IS NULL;
COMMENT ON TABLE {schema}.raised_alerts IS 'Each change of a state, and each reminder, once for each channel. Written by raise_alerts(), read through the view alerts.';
COMMENT ON COLUMN {schema}.raised_alerts.id IS 'Id of the alert. Receivers recognise a repeated delivery by it.';
COMMENT ON COLUMN {schema}.raised_alerts.at IS 'When it was raised.';
COMMENT ON COLUMN {schema}.raised_alerts.event IS 'failed, recovered, overdue, late, skipped, deadline, violation or runner_lost.';
COMMENT ON COLUMN {schema}.raised_alerts.kind IS 'opened, closed or reminder.';
COMMENT ON COLUMN {schema}.raised_alerts.channel IS 'The channel to which it is delivered.';
COMMENT ON COLUMN {schema}.raised_alerts.since IS 'When the state was opened.';
COMMENT ON COLUMN {schema}.raised_alerts.count IS 'How often the event had occurred in a row.';
COMMENT ON COLUMN {schema}.raised_alerts.job_name IS 'The job; NULL: the alert is about the ledger.';
COMMENT ON COLUMN {schema}.raised_alerts.scope_kind IS 'Kind of the scope; NULL: the alert is not about one.';
COMMENT ON COLUMN {schema}.raised_alerts.scope_id IS 'Id of the scope; NULL: the alert is not about one.';
COMMENT ON COLUMN {schema}.raised_alerts.runner_id IS 'The runner; NULL: the alert is not about one.';
COMMENT ON COLUMN {schema}.raised_alerts.execution_id IS 'The execution; NULL: the alert is not about one.';
COMMENT ON COLUMN {schema}.raised_alerts.plan_time IS 'The plan_time; NULL: the alert is not about one.';
COMMENT ON COLUMN {schema}.raised_alerts.summary IS 'The alert as a sentence.';
COMMENT ON COLUMN {schema}.raised_alerts.details IS 'The alert for programs, such as status, error_code, error_msg and the end of the output.';
COMMENT ON COLUMN {schema}.raised_alerts.owner IS 'Owner of the job at that time; NULL: it had none.';
COMMENT ON COLUMN {schema}.raised_alerts.labels IS 'Labels of the job at that time; NULL or empty: it had none.';
COMMENT ON COLUMN {schema}.raised_alerts.delivery_id IS 'Execution that delivers the alert; NULL: none has been created yet.';

CREATE TABLE {schema}.alert_progress (
    singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    watching  boolean NOT NULL DEFAULT false,
    handled   pg_snapshot NOT NULL DEFAULT pg_current_snapshot(),
    since     timestamptz NOT NULL DEFAULT '-infinity',
    next_at   timestamptz NOT NULL DEFAULT '-infinity'
);
COMMENT ON TABLE {schema}.alert_progress IS 'How far raise_alerts() is. One row.';
COMMENT ON COLUMN {schema}.alert_progress.singleton IS 'Always true: the table has one row.';
COMMENT ON COLUMN {schema}.alert_progress.watching IS 'Whether a job has notify, or a channel subscribes to events of the ledger. Otherwise replicas do not call raise_alerts().';
COMMENT ON COLUMN {schema}.alert_progress.handled IS 'Changes that are visible in this snapshot have been observed.';
COMMENT ON COLUMN {schema}.alert_progress.since IS 'What happened before this instant raises no alert.';
COMMENT ON COLUMN {schema}.alert_progress.next_at IS 'When events that have no change of an execution are next searched for.';
INSERT INTO {schema}.alert_progress DEFAULT VALUES;
