CREATE OR REPLACE VIEW {schema}.host_status AS
SELECT h.name,
       CASE WHEN h.retired_at IS NOT NULL THEN 'retired'
            WHEN h.present_through >= {schema}.db_now() THEN 'present' ELSE 'absent' END AS state,
       h.labels, h.present_from, nullif(h.present_through, '1970-01-01Z') AS present_through, h.retired_at, h.retired_by,
       (SELECT count(*) FROM {schema}.runners r
        WHERE r.host = h.name AND r.state = 'running' AND r.stale_after > {schema}.db_now()
          AND r.version <> 'external') AS runners,
       (SELECT count(DISTINCT s.job_name) FROM {schema}.schedules s
        WHERE s.scope_kind = 'host' AND s.scope_id = h.name AND (s.retired_at IS NULL OR s.returned_at IS NOT NULL)) AS jobs
FROM {schema}.hosts h;
COMMENT ON VIEW {schema}.host_status IS 'Hosts on which replicas have run, or that a job lists.';
COMMENT ON COLUMN {schema}.host_status.name IS 'Name of the host.';
COMMENT ON COLUMN {schema}.host_status.state IS 'present: a replica has checked in lately. absent: none has. retired: jobs with every do not run on it until it checks in again.';
COMMENT ON COLUMN {schema}.host_status.labels IS 'All labels of its replicas whose last check-in counts, or counted in the last 10 minutes. While none is live: the last ones.';
COMMENT ON COLUMN {schema}.host_status.present_from IS 'Start of the time in which its replicas have checked in without a gap; NULL: none has checked in.';
COMMENT ON COLUMN {schema}.host_status.present_through IS 'End of the time for which its last check-in counts; NULL: there was none.';
COMMENT ON COLUMN {schema}.host_status.retired_at IS 'When it was retired; NULL: it is not retired.';
COMMENT ON COLUMN {schema}.host_status.retired_by IS 'The person who retired it, or hosts_retire_after.';
COMMENT ON COLUMN {schema}.host_status.runners IS 'Number of its live replicas.';
COMMENT ON COLUMN {schema}.host_status.jobs IS 'Number of jobs with a scope of this host.';
