-- Reads an execution with its payload. No lock. Zero rows: there is no execution with this id.
SELECT e.job_name, e.status, e.next_attempt_at, e.created_at, e.started_at, e.finished_at, e.runner_id, e.attempt,
       e.attempts::text AS attempts, e.error_code, e.error_msg, e.result::text AS result,
       p.payload::text AS payload
FROM {schema}.execution_status e
JOIN {schema}.execution_payloads p USING (id)
WHERE e.id = %(id)s::bigint
