-- Lists the channels of alerts by name. NULL does not restrict. No lock. Zero rows: there are none.
SELECT c.name, c.kind, c.on_ledger, c.source, c.paused_at, c.delivery_id, c.delivery_status, c.delivery_at,
       c.delivery_error
FROM {schema}.channel_status c
WHERE %(channel)s::text IS NULL OR c.name = %(channel)s::text
ORDER BY c.name
