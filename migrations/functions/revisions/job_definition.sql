-- Neither the state of the job nor what an apply or an edit notes about itself.
CREATE OR REPLACE FUNCTION {schema}_internal.job_policies(job {schema}.jobs) RETURNS jsonb
LANGUAGE sql STABLE AS $$
    SELECT to_jsonb(job) - ARRAY['revision', 'source', 'deploy', 'paused_at', 'paused_by', 'paused_reason',
                                 'paused_until', 'retired_at', 'edited_by', 'spec_error']
$$;
COMMENT ON FUNCTION {schema}_internal.job_policies({schema}.jobs) IS 'Returns the columns of a row of jobs whose change makes a revision, and the description.';

-- The settings are pinned, because the texts in a definition depend on them, and an unchanged definition must
-- compare as equal. For the same reason NULL is left out: a policy that is added later is NULL in older definitions.
CREATE OR REPLACE FUNCTION {schema}_internal.job_definition(job {schema}.jobs) RETURNS jsonb
LANGUAGE sql STABLE SET timezone = 'UTC' SET intervalstyle = 'postgres' SET extra_float_digits = 1 AS $$
    SELECT jsonb_object_agg(p.key, p.value) FROM jsonb_each({schema}_internal.job_policies(job)) p
    WHERE p.value <> 'null'
$$;
COMMENT ON FUNCTION {schema}_internal.job_definition({schema}.jobs) IS 'Returns the part of a row of jobs that job_revisions.definition keeps: all policies that are not NULL.';
