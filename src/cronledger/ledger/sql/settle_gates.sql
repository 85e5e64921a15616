-- Writes the verdicts about the gates that this transaction has locked with lock_gates: the execution is due (open), it
-- waits (wait), or its wait has ended (expire). Notifies the replicas of executions that are due.
-- Lock: none that lock_gates does not have. Always one row: how many opened, and how many expired.
SELECT w.opened, w.expired
FROM {schema}_internal.settle_gates(
    %(jobs)s::text[], %(kinds)s::text[], %(scopes)s::text[], %(plans)s::timestamptz[], %(verdicts)s::text[],
    %(afters)s::timestamptz[], %(untils)s::timestamptz[], %(upstream_jobs)s::text[], %(upstream_kinds)s::text[],
    %(upstream_ids)s::text[], %(upstream_plans)s::timestamptz[], %(missing)s::text[], %(checks)s::timestamptz[]) w
