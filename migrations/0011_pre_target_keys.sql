-- The keys of a target are the words of a file: python, command and sql. They replace function, argv, shell and
-- statement. This changes no job, so it makes no revisions; the history has the new keys, too.
ALTER TABLE {schema}.jobs DISABLE TRIGGER USER;

CREATE FUNCTION {schema}_internal.renamed_target(handler text, target jsonb) RETURNS jsonb
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE
        WHEN handler = 'python' AND target ? 'function'
            THEN target - 'function' || jsonb_build_object('python', target -> 'function')
        WHEN handler = 'sql' AND target ? 'statement'
            THEN target - 'statement' || jsonb_build_object('sql', target -> 'statement')
        WHEN handler = 'command' AND target ?| ARRAY['argv', 'shell']
            THEN target - ARRAY['argv', 'shell']
                 || jsonb_build_object('command', coalesce(target -> 'argv', target -> 'shell'))
        ELSE target END
$$;

UPDATE {schema}.jobs j SET target = {schema}_internal.renamed_target(j.handler, j.target)
WHERE j.target <> {schema}_internal.renamed_target(j.handler, j.target);
UPDATE {schema}.job_revisions r
SET definition = jsonb_set(r.definition, '{target}', {schema}_internal.renamed_target(
    r.definition ->> 'handler', r.definition -> 'target'))
WHERE r.definition -> 'target' <> {schema}_internal.renamed_target(
    r.definition ->> 'handler', r.definition -> 'target');

DROP FUNCTION {schema}_internal.renamed_target(text, jsonb);
ALTER TABLE {schema}.jobs ENABLE TRIGGER USER;
COMMENT ON COLUMN {schema}.jobs.target IS 'What runs, with the keys of a file: {"python": "package.module:function"}, {"command": [list] or "shell line"} with env and cwd, {"sql": "statement"}, or the table of http: {"url": "https://…"}. {} for external.';
