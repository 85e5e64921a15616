-- Drops the channels of a source that has no jobs any more. One row for each: its name.
-- Lock: the channels, waiting, after the jobs of the source.
DELETE FROM {schema}.channels c
WHERE c.source = %(source)s
  AND NOT EXISTS (SELECT FROM {schema}.jobs j WHERE j.source = c.source AND j.retired_at IS NULL)
RETURNING c.name
