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

CREATE OR REPLACE FUNCTION {schema}_internal.channels_check_values() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    problem text := CASE
        WHEN NEW.name !~ '^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$' THEN 'has another name than 1 to 100 letters, digits and . _ -'
        WHEN jsonb_typeof(NEW.settings) <> 'object' THEN 'has settings that are not an object'
        ELSE coalesce({schema}_internal.channel_problem(NEW.settings),
                      'has settings whose JSON ' || {schema}_internal.json_problem(NEW.settings)) END;
BEGIN
    IF problem IS NOT NULL AND (NEW.name, NEW.settings) IS DISTINCT FROM (OLD.name, OLD.settings) THEN
        RAISE EXCEPTION 'channel %: it %', left(NEW.name, 100), problem
            USING HINT = 'Write for example {"kind": "webhook", "url": "https://example.org/alerts"}. kind: webhook, slack, email, command, python or apprise; on_ledger: a list of violation, runner_lost and runner_failing.',
                  ERRCODE = 'invalid_parameter_value';
    END IF;
    RETURN NEW;
END $$;
COMMENT ON FUNCTION {schema}_internal.channels_check_values() IS 'Runs before a write to channels. Refuses a channel to which nothing can be delivered.';
