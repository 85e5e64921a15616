-- Returns the channels that would change if a source declared these, a JSON object of their settings by name: the change
-- (added, changed, retired), the owner, and the settings before and after, without their secrets; NULL: there are none.
-- No lock. Zero rows: no channel would change.
SELECT coalesce(c.name, g.key) AS name, c.source,
       CASE WHEN c.name IS NULL THEN 'added' WHEN g.key IS NULL THEN 'retired' ELSE 'changed' END AS change,
       CASE WHEN c.name IS NOT NULL THEN {schema}_internal.masked_channel(c.settings) END AS before,
       CASE WHEN g.key IS NOT NULL THEN {schema}_internal.masked_channel(g.value) END AS after
FROM {schema}.channels c FULL JOIN jsonb_each(%(channels)s::jsonb) g ON g.key = c.name
WHERE (g.key IS NOT NULL OR c.source = %(source)s)
  AND (c.settings IS DISTINCT FROM g.value OR c.source <> %(source)s)
ORDER BY 1
