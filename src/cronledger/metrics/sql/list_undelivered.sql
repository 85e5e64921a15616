-- Lists channels with the number of their alerts of the last day that were not delivered within 5 minutes, the most
-- first. They are searched for among the newest max_read alerts. `total`: the number of all channels. No lock. Zero
-- rows: no channel exists, and no alert is undelivered.
SELECT u.channel, sum(u.count)::bigint AS count, count(*) OVER () AS total
FROM (
    SELECT c.name AS channel, 0 AS count FROM {schema}.channel_status c
    UNION ALL
    SELECT a.channel, count(*)
    FROM (SELECT n.channel, n.at, n.delivered_at FROM {schema}.alerts n
          WHERE n.at > {schema}.db_now() - interval '1 day' ORDER BY n.at DESC, n.id DESC LIMIT %(max_read)s) a
    WHERE a.at < {schema}.db_now() - interval '5 minutes' AND a.delivered_at IS NULL
    GROUP BY a.channel
) u
GROUP BY u.channel
ORDER BY count DESC, u.channel COLLATE "C"
LIMIT %(max_rows)s
