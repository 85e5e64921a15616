CREATE OR REPLACE VIEW {schema}.report_token_status AS
SELECT t.id, t.job_name, t.scope_kind, t.scope_id, t.host, t.created_at, t.created_by, t.last_used_at, t.revoked_at,
       t.revoked_by
FROM {schema}.report_tokens t;
COMMENT ON VIEW {schema}.report_token_status IS 'Tokens with which programs report runs of observed jobs to the web page. Neither the tokens nor their hashes are shown.';
COMMENT ON COLUMN {schema}.report_token_status.id IS 'Id of the token.';
COMMENT ON COLUMN {schema}.report_token_status.job_name IS 'The job whose runs the token reports.';
COMMENT ON COLUMN {schema}.report_token_status.scope_kind IS 'Kind of the scope.';
COMMENT ON COLUMN {schema}.report_token_status.scope_id IS 'Id of the scope.';
COMMENT ON COLUMN {schema}.report_token_status.host IS 'Host that is recorded with each report; NULL: none.';
COMMENT ON COLUMN {schema}.report_token_status.created_at IS 'When the token was created.';
COMMENT ON COLUMN {schema}.report_token_status.created_by IS 'The person who created the token.';
COMMENT ON COLUMN {schema}.report_token_status.last_used_at IS 'When its last report arrived; NULL: none has arrived.';
COMMENT ON COLUMN {schema}.report_token_status.revoked_at IS 'When the token was revoked; NULL: it is valid.';
COMMENT ON COLUMN {schema}.report_token_status.revoked_by IS 'The person who revoked the token.';
