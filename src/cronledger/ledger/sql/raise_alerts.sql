-- Observes changed executions and other events, flips the states of alerts, and creates deliveries. One row: whether
-- more changes are left; NULL: another process does it.
-- Lock: the turn of the alerts (advisory, not waited for), then rows of the tables of alerts.
SELECT {schema}_internal.raise_alerts(%(most)s) AS more
