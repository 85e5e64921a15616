CREATE OR REPLACE VIEW {schema}.delivery_status AS
SELECT d.id, d.channel, d.status, d.created_at, d.due_at, d.attempt, d.max_attempts, d.runner_id, d.started_at,
       d.finished_at, d.error_code, d.error_msg, d.requested_by
FROM {schema}.deliveries d;
COMMENT ON VIEW {schema}.delivery_status IS 'Deliveries of alerts and of test messages, one row each. The view alerts has their alerts. Use ORDER BY id.';
COMMENT ON COLUMN {schema}.delivery_status.id IS 'Id of the delivery, the same in each attempt.';
COMMENT ON COLUMN {schema}.delivery_status.channel IS 'The channel.';
COMMENT ON COLUMN {schema}.delivery_status.status IS 'PENDING, RUNNING, SUCCESS or FAILED. With due_at, FAILED is tried again.';
COMMENT ON COLUMN {schema}.delivery_status.created_at IS 'When it was created.';
COMMENT ON COLUMN {schema}.delivery_status.due_at IS 'When a replica may send it. While it is RUNNING: when its lease ends. NULL: it has ended.';
COMMENT ON COLUMN {schema}.delivery_status.attempt IS 'Number of the current or last attempt; 0: none has begun.';
COMMENT ON COLUMN {schema}.delivery_status.max_attempts IS 'Number of attempts after which it is not tried again.';
COMMENT ON COLUMN {schema}.delivery_status.runner_id IS 'The runner of the current or last attempt.';
COMMENT ON COLUMN {schema}.delivery_status.started_at IS 'When that attempt began.';
COMMENT ON COLUMN {schema}.delivery_status.finished_at IS 'When the last attempt ended.';
COMMENT ON COLUMN {schema}.delivery_status.error_code IS 'Why the last attempt failed; NULL: it did not.';
COMMENT ON COLUMN {schema}.delivery_status.error_msg IS 'That error in words.';
COMMENT ON COLUMN {schema}.delivery_status.requested_by IS 'Of a test: the person or program that requested it. NULL: it delivers alerts.';
