-- Lists the channels that do not exist, and that one of these jobs, or any job if they are among `channels`, names in
-- notify. One row for each job and channel, with the source of the job. No lock. Zero rows: all of them exist.
SELECT m.job_name, m.channel, j.source FROM {schema}.missing_channels m
JOIN {schema}.jobs j ON j.name = m.job_name
WHERE m.job_name = ANY (%(jobs)s::text[]) OR m.channel = ANY (%(channels)s::text[])
ORDER BY m.job_name, m.channel
