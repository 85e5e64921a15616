-- Lists the given pairs of a job and a host that a live runner of the host can run; host NULL: a runner of any host.
-- No lock. Zero rows: no runner can run any of them.
SELECT w.job, w.host
FROM unnest(%(jobs)s::text[], %(hosts)s::text[]) w(job, host)
JOIN {schema}.jobs j ON j.name = w.job
WHERE {schema}_internal.has_live_runner(j, w.host)
