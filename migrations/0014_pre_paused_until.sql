-- Each poll of each replica reads the next end of a pause, and there may be a million jobs.

CREATE INDEX jobs_paused_until ON {schema}.jobs (paused_until) WHERE paused_until IS NOT NULL;
