-- Operator functions: accept a violation, and withdraw an acceptance. A violation is identified
-- by its kind, (job, scope), plan_time and execution: its detail is prose, and changes with versions.
-- Lock: rows of acceptances, after none of the tables of the lock order.

CREATE OR REPLACE FUNCTION {schema}_internal.check_acceptance(
    kind text, job text, scope_kind text, scope_id text, first timestamptz, last timestamptz, reason text)
RETURNS void LANGUAGE plpgsql STABLE AS $$
DECLARE
    kinds constant text[] := ARRAY['missing', 'extra', 'wrong_revision', 'wrong_due_at', 'miscounted',
        'untrue_skip', 'doubled', 'early', 'overlapping', 'over_limit', 'attempts', 'unknown_end', 'window'];
BEGIN
    IF kind IS NULL OR kind <> ALL (kinds) THEN
        RAISE EXCEPTION 'violations of kind % cannot be accepted', coalesce(kind, 'NULL')
            USING HINT = format('These kinds can be accepted: %s. Others describe the current state, and disappear once their cause is removed.',
                                array_to_string(kinds, ', ')),
                  ERRCODE = 'invalid_parameter_value';
    END IF;
    IF reason IS NULL OR reason !~ '[^[:space:]]' THEN
        RAISE EXCEPTION 'violation % of job %: no reason is given', kind, job
            USING HINT = 'Give the incident, and how it was repaired.', ERRCODE = 'invalid_parameter_value';
    END IF;
    IF NOT EXISTS (SELECT FROM {schema}.job_revisions r WHERE r.job_name = job) THEN
        PERFORM {schema}_internal.raise_unknown_job(job);
    END IF;
    IF scope_kind IS NULL OR scope_id IS NULL THEN
        RAISE EXCEPTION 'violation % of job %: scope %/% is incomplete', kind, job, scope_kind, scope_id
            USING HINT = 'Give both scope_kind and scope_id. For a job without scopes both are ''global''.',
                  ERRCODE = 'invalid_parameter_value';
    END IF;
    -- Future plan_times have no violations yet.
    IF first IS NULL OR first = '-infinity' OR last < first OR last > {schema}.db_clock() THEN
        RAISE EXCEPTION 'violation % of job %: plan_times % to % are not a range in the past', kind, job, first, last
            USING HINT = 'Give the plan_time of the violation. For several in a row, also give the last one as through_plan_time.',
                  ERRCODE = 'invalid_parameter_value';
    END IF;
END $$;
COMMENT ON FUNCTION {schema}_internal.check_acceptance(text, text, text, text, timestamptz, timestamptz, text) IS 'Raises if accept_violation cannot accept this violation.';

CREATE OR REPLACE FUNCTION {schema}.accept_violation(
    kind text, job text, plan_time timestamptz, reason text, scope_kind text DEFAULT 'global',
    scope_id text DEFAULT 'global', through_plan_time timestamptz DEFAULT NULL,
    execution_id bigint DEFAULT NULL, requested_by text DEFAULT NULL)
RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
    last timestamptz := coalesce(through_plan_time, plan_time);
    made bigint;
    done boolean;
BEGIN
    PERFORM {schema}_internal.check_acceptance(kind, job, scope_kind, scope_id, plan_time, last, reason);
    INSERT INTO {schema}.acceptances AS a (kind, job_name, scope_kind, scope_id, plan_time,
        through_plan_time, execution_id, reason, accepted_by, accepted_at)
    VALUES (kind, job, scope_kind, scope_id, plan_time, last, execution_id, reason,
            coalesce(requested_by, session_user), {schema}.db_clock())
    ON CONFLICT DO NOTHING
    RETURNING a.id INTO made;
    done := made IS NOT NULL;
    IF NOT done THEN  -- accepted already: the first reason stands
        SELECT a.id INTO made FROM {schema}.acceptances a
        WHERE (a.kind, a.job_name, a.scope_kind, a.scope_id, a.plan_time, a.through_plan_time)
            = (kind, job, scope_kind, scope_id, plan_time, last)
          AND a.execution_id IS NOT DISTINCT FROM execution_id AND a.withdrawn_at IS NULL;
    END IF;
    PERFORM {schema}_internal.record_action('accept_violation', 'acceptance', made::text, requested_by,
        CASE WHEN done THEN 'done' ELSE 'unchanged' END, job,
        arguments => jsonb_build_object(
            'kind', kind, 'scope_kind', scope_kind, 'scope_id', scope_id, 'plan_time', plan_time,
            'through_plan_time', through_plan_time, 'execution_id', execution_id),
        reason => reason);
    RETURN made;
END $$;
COMMENT ON FUNCTION {schema}.accept_violation(text, text, timestamptz, text, text, text, timestamptz, bigint, text) IS 'Accepts the violation of this kind at these plan_times, which must name this execution (NULL: none). verify shows it as accepted and does not fail for it; the view violations leaves it out. Returns the id of the acceptance; if the violation was accepted already, the id of the earlier acceptance.';
