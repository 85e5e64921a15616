-- The first problem of a target, as (message, hint). Values of env and headers are not shown, because they may
-- be secret. The keys of an external target belong to its workers.
CREATE OR REPLACE FUNCTION {schema}_internal.target_problem(handler text, target jsonb)
RETURNS text[] LANGUAGE sql IMMUTABLE AS $$
    WITH form(key, kind, secret) AS (
        SELECT f.key, f.kind, f.secret FROM (VALUES
            ('python', 'python', 'string', false), ('command', 'command', NULL, false),
            ('command', 'env', 'object', true), ('command', 'cwd', 'string', false),
            ('sql', 'sql', 'string', false),
            ('http', 'url', 'string', true), ('http', 'method', 'string', false),
            ('http', 'headers', 'object', true), ('http', 'body', NULL, true),
            ('http', 'expect', 'array', false),
            ('http', 'allow_private', 'boolean', false)) f(of_handler, key, kind, secret)
        WHERE f.of_handler = handler
    ), needed(key, example) AS (VALUES
        ('python', '{"python": "package.module:name"}'),
        ('command', '{"command": ["backup", "--full"]} or {"command": "backup | gzip"}'),
        ('sql', '{"sql": "DELETE FROM sessions"}'),
        ('http', '{"url": "https://example.com/"}')
    ), problem(place, message) AS (
        SELECT 1, format('has no "%s"', f.key) FROM form f
        WHERE f.key IN ('python', 'command', 'sql', 'url') AND NOT target ? f.key
        UNION ALL
        SELECT 3, format('has "%s", which handler = %s does not use', left(e.key, 60), handler)
        FROM jsonb_object_keys(target) e(key)
        WHERE handler <> 'external' AND e.key NOT IN (SELECT f.key FROM form f)
        UNION ALL
        SELECT 4, format('has "%s"%s, which is not %s %s', f.key,
                         CASE WHEN NOT f.secret THEN ' = ' || left((target -> f.key)::text, 60) END,
                         CASE WHEN f.kind IN ('array', 'object') THEN 'an' ELSE 'a' END, f.kind)
        FROM form f WHERE jsonb_typeof(target -> f.key) <> f.kind
        UNION ALL
        SELECT 5, format('has a blank "%s"', f.key)
        FROM form f WHERE jsonb_typeof(target -> f.key) = 'string'
          AND (f.kind = 'string' OR f.key = 'command') AND target ->> f.key !~ '[^[:space:]]'
        UNION ALL
        SELECT 6, 'has a "command" that is neither a string nor a list of strings'
        WHERE handler = 'command' AND target ? 'command' AND CASE jsonb_typeof(target -> 'command')
            WHEN 'string' THEN false
            WHEN 'array' THEN target -> 'command' = '[]' OR EXISTS (
                SELECT FROM jsonb_array_elements(target -> 'command') a(value)
                WHERE jsonb_typeof(a.value) <> 'string')
            ELSE true END
        UNION ALL
        SELECT 7, format('has "cwd" = %s, which is not an absolute path', left((target -> 'cwd')::text, 60))
        WHERE handler = 'command' AND target ->> 'cwd' !~ '^/'
    )
    SELECT ARRAY[p.message, 'Write for example ' || n.example || '.']
    FROM problem p LEFT JOIN needed n ON n.key = handler
    ORDER BY p.place, p.message COLLATE "C" LIMIT 1
$$;
COMMENT ON FUNCTION {schema}_internal.target_problem(text, jsonb) IS 'Returns the first reason why a handler cannot run this target, with a hint; NULL: SQL finds no reason.';
