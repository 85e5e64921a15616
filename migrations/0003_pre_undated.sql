-- What a transaction has written with a provisional date, until its COMMIT dates it (12_dates.sql).

CREATE SEQUENCE {schema}.undated_id AS bigint;
CREATE TABLE {schema}.undated (
    id         bigint PRIMARY KEY DEFAULT nextval('{schema}.undated_id'),
    xact       xid8 NOT NULL DEFAULT pg_current_xact_id(),
    job_name   text COLLATE "C" NOT NULL,
    revision   bigint,
    kinds      text[],
    scopes     text[],
    changes    text[],
    at         timestamptz NOT NULL,
    dated_at   timestamptz
);
COMMENT ON TABLE {schema}.undated IS 'Revisions and scopes that a transaction has written and that its COMMIT will date. No transaction ever sees a row of another one: each row is deleted before it is committed.';
COMMENT ON COLUMN {schema}.undated.id IS 'The order in which the transaction wrote them.';
COMMENT ON COLUMN {schema}.undated.xact IS 'The transaction.';
COMMENT ON COLUMN {schema}.undated.job_name IS 'The job.';
COMMENT ON COLUMN {schema}.undated.revision IS 'The revision of the job to date; NULL: the row is about scopes of it.';
COMMENT ON COLUMN {schema}.undated.kinds IS 'The scope_kind of each scope to date.';
COMMENT ON COLUMN {schema}.undated.scopes IS 'The scope_id of each scope to date.';
COMMENT ON COLUMN {schema}.undated.changes IS 'What happened to each scope: appears, returns or retires.';
COMMENT ON COLUMN {schema}.undated.at IS 'The provisional date, as it stands in the rows to date.';
COMMENT ON COLUMN {schema}.undated.dated_at IS 'When the rows were dated; NULL: not yet.';
