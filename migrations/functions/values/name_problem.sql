-- The same as rules/names.py.
CREATE OR REPLACE FUNCTION {schema}_internal.name_problem(name text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE
        WHEN name ~ E'[\u0001-\u001f\u007f-\u009f]' THEN 'contains a control character'
        WHEN name ~ E'^[\u0009-\u000d\u001c-\u0020\u0085\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]|[\u0009-\u000d\u001c-\u0020\u0085\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]$' THEN 'begins or ends with white space'
    END
$$;
COMMENT ON FUNCTION {schema}_internal.name_problem(text) IS 'Returns why this cannot be a new name of a job or queue, or a new kind or id of a scope. NULL: it can.';
