-- Declares the channels of a source, a JSON object of their settings by name, and drops those that it no longer
-- declares. One row for each declared or dropped channel: its owner, which is another source if the channel was not
-- written, and its change (added, changed, retired; NULL: none). Zero rows: the source has and had none.
-- Lock: the channels of the source, waiting, after its jobs and schedules; the audit trail by trigger.
WITH given AS (
    SELECT g.key AS name, g.value AS settings FROM jsonb_each(%(channels)s::jsonb) g ORDER BY g.key COLLATE "C"
), written AS (
    INSERT INTO {schema}.channels AS c (name, settings, source, edited_by)
    SELECT g.name, g.settings, %(source)s, %(requested_by)s FROM given g
    ON CONFLICT (name) DO UPDATE
    SET settings = CASE WHEN coalesce(c.source = excluded.source, true) THEN excluded.settings ELSE c.settings END,
        source = coalesce(c.source, excluded.source),
        edited_by = CASE WHEN coalesce(c.source = excluded.source, true) THEN excluded.edited_by ELSE c.edited_by END
    RETURNING c.name, c.settings, c.source
), dropped AS (
    DELETE FROM {schema}.channels c
    WHERE c.source = %(source)s AND c.name NOT IN (SELECT g.name FROM given g)
    RETURNING c.name, c.source
)
SELECT w.name, w.source, CASE WHEN b.name IS NULL THEN 'added' WHEN b.settings <> w.settings THEN 'changed' END AS change
FROM written w LEFT JOIN {schema}.channels b ON b.name = w.name  -- as before this statement
UNION ALL
SELECT d.name, d.source, 'retired' FROM dropped d
ORDER BY name
