-- Makes an execution of each of these reports of observed jobs, and notes it in the report. A report that has one is left
-- as it is.
-- Lock: the schedule rows are held; inserted in key order; then the reports. No rows.
SELECT FROM {schema}_internal.record_reports(
    %(reports)s::bigint[], %(plans)s::timestamptz[], %(exact)s::boolean[], %(triggers)s::text[], %(revisions)s::bigint[],
    %(queues)s::text[])
