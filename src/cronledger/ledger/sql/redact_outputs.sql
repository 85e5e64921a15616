-- Redacts ended executions that are older than keep_output of their jobs. One row: how many, and whether more are left.
-- Lock: the turn of the roll-up (not waited for), that of alerts (waiting), executions SKIP LOCKED, then rows of their
-- alerts.
SELECT o.redacted, o.unfinished FROM {schema}_internal.redact_outputs(%(most)s) o
