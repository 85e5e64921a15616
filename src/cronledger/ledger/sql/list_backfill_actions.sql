-- Lists what a backfill of these plan_times would do, in their order: make, retry, repeat, or NULL for
-- nothing, with the existing execution. No lock. Zero rows: this (job, scope) does not exist.
SELECT a.plan_time, a.action, a.id, a.status
FROM {schema}.preview_backfill(
    %(job)s, %(plan_times)s::timestamptz[], %(kind)s, %(scope)s, %(reprocess)s,
    %(ended_before)s::timestamptz) a
