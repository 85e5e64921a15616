-- Takes the lock under which a source drops channels (alone), or names channels in notify (with others), so that of two
-- sources at once, one of which drops what the other one names, the later one is refused. Always one row.
-- Lock: the row channels of turns, waiting, after the jobs and schedules of the source.
WITH alone AS MATERIALIZED (
    SELECT t.step FROM {schema}.turns t WHERE %(drops)s::boolean AND t.step = 'channels' FOR UPDATE
), shared AS MATERIALIZED (
    SELECT t.step FROM {schema}.turns t WHERE NOT %(drops)s::boolean AND t.step = 'channels' FOR SHARE
)
SELECT (SELECT count(*) FROM alone) + (SELECT count(*) FROM shared) AS locked
