-- Lists hosts by name, retired ones last. No lock. Zero rows: no replica has run.
SELECT h.name, h.state, h.labels, h.runners, h.jobs, h.present_from, h.present_through, h.retired_at, h.retired_by
FROM {schema}.host_status h
ORDER BY h.state = 'retired', h.name
