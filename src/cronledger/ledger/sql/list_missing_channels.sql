-- Lists the channels that these jobs name in notify and that do not exist. No lock. Zero rows: all of them exist.
SELECT m.job_name, m.channel FROM {schema}.missing_channels m
WHERE m.job_name = ANY (%(jobs)s::text[])
ORDER BY m.job_name, m.channel
