CREATE OR REPLACE FUNCTION {schema}_internal.has_label(labels jsonb, label text)
RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN strpos(label, '=') = 0 THEN labels ? label
                ELSE labels ->> split_part(label, '=', 1) = substr(label, strpos(label, '=') + 1) END
$$;
COMMENT ON FUNCTION {schema}_internal.has_label(jsonb, text) IS 'Returns whether these labels of a job have a label: `team=data`, or `team` with any value. NULL: the job has no labels, or none with this key.';
