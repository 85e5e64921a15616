-- Strict: a lax path unwraps arrays, and the levels would not be those of the value.
CREATE OR REPLACE FUNCTION {schema}_internal.json_problem(value jsonb) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE
        WHEN octet_length(value::text) > 65536
            THEN format('has %s bytes of JSON; the limit is 65536', octet_length(value::text))
        WHEN jsonb_path_exists(value, 'strict $.**{100} ? (@.type() == "array" || @.type() == "object")')
            THEN 'is nested more than 100 levels deep'
        WHEN jsonb_path_exists(value, 'strict $.** ? (@.type() == "number").abs() ? (@ >= 1.8e308)')
            THEN 'contains a number of 1.8e308 or more, which most JSON parsers read as infinite'
    END
$$;
COMMENT ON FUNCTION {schema}_internal.json_problem(jsonb) IS 'Returns why this value cannot be stored: it is too large, too deeply nested, or contains a number that cannot be read. NULL: it can be stored.';

CREATE OR REPLACE FUNCTION {schema}_internal.check_json(job text, field text, value jsonb) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    problem text := {schema}_internal.json_problem(value);
BEGIN
    IF problem IS NOT NULL THEN
        RAISE EXCEPTION 'job %: % %', job, field, problem
            USING HINT = 'Store the data elsewhere, and put a reference to it here.',
                  ERRCODE = 'invalid_parameter_value';
    END IF;
END $$;
COMMENT ON FUNCTION {schema}_internal.check_json(text, text, jsonb) IS 'Raises if this value of a job or of an execution cannot be stored.';
