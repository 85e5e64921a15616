-- The first problem of a channel. Values are not shown, because they may be secret.
CREATE OR REPLACE FUNCTION {schema}_internal.channel_problem(channel jsonb) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    WITH form(kind, key, types, needed) AS (VALUES
        (NULL, 'kind', '{string}'::text[], true), (NULL, 'on_ledger', '{array}', false),
        ('webhook', 'url', '{string,object}', true), ('webhook', 'headers', '{object}', false),
        ('webhook', 'secret', '{object}', false), ('webhook', 'allow_private', '{boolean}', false),
        ('slack', 'url', '{string,object}', true), ('slack', 'allow_private', '{boolean}', false),
        ('email', 'to', '{string,array}', true), ('email', 'sender', '{string}', true),
        ('email', 'host', '{string}', false), ('email', 'port', '{number}', false),
        ('email', 'security', '{string}', false), ('email', 'user', '{string}', false),
        ('email', 'password', '{object}', false),
        ('command', 'command', '{string,array}', true), ('command', 'env', '{object}', false),
        ('command', 'cwd', '{string}', false),
        ('python', 'python', '{string}', true),
        ('apprise', 'urls', '{string,array}', true)
    ), own AS (
        SELECT f.* FROM form f WHERE f.kind IS NULL OR f.kind = channel ->> 'kind'
    ), problem(place, message) AS (
        SELECT 1, CASE WHEN channel ? 'kind' THEN format('has "kind" = %s, which is not a kind of channel',
                                                         left((channel -> 'kind')::text, 60))
                       ELSE 'has no "kind"' END
        WHERE NOT EXISTS (SELECT FROM form f WHERE f.kind = channel ->> 'kind')
        UNION ALL
        SELECT 2, format('has no "%s"', o.key) FROM own o WHERE o.needed AND NOT channel ? o.key
        UNION ALL
        SELECT 3, format('has "%s", which kind = %s does not use', left(e.key, 60), channel ->> 'kind')
        FROM jsonb_object_keys(channel) e(key) WHERE e.key NOT IN (SELECT o.key FROM own o)
        UNION ALL
        SELECT 4, format('has "%s" of the JSON type %s instead of %s', o.key, jsonb_typeof(channel -> o.key),
                         array_to_string(o.types, ' or '))
        FROM own o WHERE jsonb_typeof(channel -> o.key) <> ALL (o.types)
        UNION ALL
        SELECT 5, format('has "on_ledger" = %s', left((channel -> 'on_ledger')::text, 60))
        WHERE jsonb_typeof(channel -> 'on_ledger') = 'array'
          AND NOT '["violation", "runner_lost", "runner_failing"]' @> (channel -> 'on_ledger')
    )
    SELECT p.message FROM problem p ORDER BY p.place, p.message COLLATE "C" LIMIT 1
$$;
COMMENT ON FUNCTION {schema}_internal.channel_problem(jsonb) IS 'Returns the first reason why nothing can be delivered to this channel; NULL: SQL finds no reason.';

CREATE OR REPLACE FUNCTION {schema}_internal.check_channel(job text, handler text, target jsonb) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    problem text;
BEGIN
    IF job !~ '^alerts[.][A-Za-z0-9][A-Za-z0-9._-]{0,99}$' OR handler <> 'external'
            OR coalesce(jsonb_typeof(target -> 'channel') <> 'object', true) THEN
        RAISE EXCEPTION 'job %: queue = alerts, which is reserved for channels of alerts', job
            USING HINT = 'Use another queue. A channel has the name alerts.NAME, handler = external, and the target {"channel": {"kind": "command", "command": ["page"]}}.',
                  ERRCODE = 'invalid_parameter_value';
    END IF;
    problem := {schema}_internal.channel_problem(target -> 'channel');
    IF problem IS NOT NULL THEN
        RAISE EXCEPTION 'job %: the channel in its target %', job, problem
            USING HINT = 'Write for example {"channel": {"kind": "webhook", "url": "https://example.org/alerts"}}. kind: webhook, slack, email, command, python or apprise; on_ledger: a list of violation, runner_lost and runner_failing.',
                  ERRCODE = 'invalid_parameter_value';
    END IF;
END $$;
COMMENT ON FUNCTION {schema}_internal.check_channel(text, text, jsonb) IS 'Raises if a job of the queue alerts is not a channel to which something can be delivered.';
