-- Observes changed executions and other events, flips the states of alerts, and creates deliveries. One row: whether
-- more changes are left (NULL: another process observes them); and whether a delivery is due, of this step or an
-- earlier one. Lock: the turn of the alerts (not waited for), then rows of the tables of alerts.
SELECT {schema}_internal.raise_alerts(%(most)s) AS more, {schema}_internal.is_delivery_due() AS deliver
