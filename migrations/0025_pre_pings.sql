-- Pings: jobs.ping is the URL of a check outside, to which replicas report the start and the end of each attempt.
-- NULL by default, which a definition leaves out (10_jobs.sql).
ALTER TABLE {schema}.jobs ADD COLUMN ping text;
COMMENT ON COLUMN {schema}.jobs.ping IS 'URL of a check with the protocol of Healthchecks, to which replicas report each attempt; NULL: none. Views leave it out, because it is the key of the check.';
