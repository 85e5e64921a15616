-- Claims deliveries of alerts for this runner: those that are due, and those whose lease has expired. Returns each with
-- the settings of its channel (NULL: it does not exist), its message, and the time of the claim. Zero rows: none is due.
-- Lock: the deliveries, SKIP LOCKED. A lease of a minute is longer than an attempt and the write of its end.
WITH due AS MATERIALIZED (
    SELECT d.id FROM {schema}.deliveries d
    WHERE d.due_at <= {schema}.db_now()
      AND NOT EXISTS (SELECT FROM {schema}.channels c WHERE c.name = d.channel AND c.paused_at IS NOT NULL)
    ORDER BY d.due_at, d.id LIMIT cardinality(%(tokens)s::uuid[])
    FOR NO KEY UPDATE SKIP LOCKED
), numbered AS (
    SELECT u.id, row_number() OVER (ORDER BY u.id) AS place FROM due u
), claimed AS (
    UPDATE {schema}.deliveries d
    SET status = 'RUNNING', attempt = d.attempt + 1, lease_token = (%(tokens)s::uuid[])[n.place], runner_id = %(runner)s,
        started_at = {schema}.db_clock(), finished_at = NULL, due_at = {schema}.db_clock() + interval '1 minute'
    FROM numbered n WHERE d.id = n.id
    RETURNING d.*
)
SELECT d.id, d.channel, d.attempt, d.max_attempts, d.lease_token AS token, d.started_at AS claimed_at, c.settings,
       coalesce(d.expires_at <= {schema}.db_now(), false) AS expired,
       {schema}_internal.delivery_message(d::{schema}.deliveries) AS message
FROM claimed d LEFT JOIN {schema}.channels c ON c.name = d.channel
ORDER BY d.id
