-- Targets without their secrets, by the rules of `cronledger.rules.masks.masked`. The patterns are E'…' strings,
-- which do not depend on standard_conforming_strings.

CREATE OR REPLACE FUNCTION {schema}_internal.masked(text text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
    SELECT regexp_replace(
        regexp_replace(masked.text, '(://[^:@/?#]*):.*@', E'\\1:***@', 'g'),
        E'((?:ssl)?password\\s*=\\s*)(?:''(?:[^''\\\\]|\\\\.)*''?|(?:[^\\s&\\\\]|\\\\.)*)', E'\\1***', 'gi')
$$;
COMMENT ON FUNCTION {schema}_internal.masked(text) IS 'Returns the text with the password of each URL and connection string replaced by ***.';

-- The path of a URL is masked too, because that of many receivers is a secret. {"env": "NAME"} names a variable.
CREATE OR REPLACE FUNCTION {schema}_internal.masked_channel(channel jsonb) RETURNS jsonb
LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce(jsonb_object_agg(f.key, CASE
        WHEN f.key = 'url' AND jsonb_typeof(f.value) = 'string' THEN
            to_jsonb(coalesce(
                (SELECT m[1] || m[3] || '/' FROM regexp_matches(f.value #>> '{}', '^([a-z]+://)([^/?#]*@)?([^/?#]*)', 'i') m), '')
                || '***')
        WHEN f.key IN ('headers', 'env') AND jsonb_typeof(f.value) = 'object' THEN
            (SELECT coalesce(jsonb_object_agg(v.key, '***'), '{}') FROM jsonb_each(f.value) v)
        WHEN f.key IN ('urls', 'headers', 'env') THEN to_jsonb('***'::text)
        WHEN f.key = 'command' AND jsonb_typeof(f.value) = 'string' THEN
            to_jsonb({schema}_internal.masked(f.value #>> '{}'))
        WHEN f.key = 'command' AND jsonb_typeof(f.value) = 'array' THEN
            (SELECT coalesce(jsonb_agg({schema}_internal.masked(v.value) ORDER BY v.place), '[]')
             FROM jsonb_array_elements_text(f.value) WITH ORDINALITY v(value, place))
        ELSE f.value END), '{}')
    FROM jsonb_each(channel) f
$$;
COMMENT ON FUNCTION {schema}_internal.masked_channel(jsonb) IS 'Returns a channel with *** for the paths of URLs, the values of env and headers, and passwords.';

CREATE OR REPLACE FUNCTION {schema}_internal.masked_target(target jsonb) RETURNS jsonb
LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce(jsonb_object_agg(f.key, CASE
        WHEN f.key IN ('env', 'headers') AND jsonb_typeof(f.value) = 'object' THEN
            (SELECT coalesce(jsonb_object_agg(v.key, '***'), '{}') FROM jsonb_each(f.value) v)
        WHEN f.key IN ('env', 'headers') THEN to_jsonb('***'::text)
        WHEN jsonb_typeof(f.value) = 'string' THEN to_jsonb({schema}_internal.masked(f.value #>> '{}'))
        WHEN jsonb_typeof(f.value) = 'array' THEN
            (SELECT coalesce(jsonb_agg(CASE jsonb_typeof(v.value)
                 WHEN 'string' THEN to_jsonb({schema}_internal.masked(v.value #>> '{}')) ELSE v.value END
                 ORDER BY v.place), '[]')
             FROM jsonb_array_elements(f.value) WITH ORDINALITY v(value, place))
        ELSE f.value END), '{}')
    FROM jsonb_each(target) f
$$;
COMMENT ON FUNCTION {schema}_internal.masked_target(jsonb) IS 'Returns a target with *** for the values of env and headers, and for passwords in its texts.';
