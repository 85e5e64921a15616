-- Rows that functions of a claim pass to each other. A type is created only where it is missing, because there is no
-- CREATE OR REPLACE TYPE. To change a type, alter it in a numbered migration.
DO $types$ BEGIN
    IF to_regtype('{schema}_internal.claim_candidate') IS NULL THEN
        CREATE TYPE {schema}_internal.claim_candidate AS (
            job_name text COLLATE "C", scope_kind text COLLATE "C", scope_id text COLLATE "C",
            plan_time timestamptz, id bigint, queue text COLLATE "C", steals boolean, forced boolean,
            lease interval, reentrant boolean, input_watermark bigint, running_from timestamptz,
            windows boolean, window_start timestamptz);
    END IF;
    IF to_regtype('{schema}_internal.claimed_execution') IS NULL THEN
        CREATE TYPE {schema}_internal.claimed_execution AS (
            job_name text, scope_kind text, scope_id text, plan_time timestamptz, id bigint,
            lease_token uuid, attempt integer, max_attempts integer, trigger text, payload text,
            revision bigint, started_at timestamptz, how text, queue text, stale_after timestamptz,
            window_start timestamptz);
    END IF;
    IF to_regtype('{schema}_internal.locked_schedule') IS NULL THEN
        CREATE TYPE {schema}_internal.locked_schedule AS (
            job_name text COLLATE "C", scope_kind text COLLATE "C", scope_id text COLLATE "C",
            queue text COLLATE "C", planned_through timestamptz, planned_revision bigint,
            next_plan_time timestamptz, retired_at timestamptz, returned_at timestamptz, woken boolean,
            ahead_of timestamptz, address tid, input_watermark bigint, running_from timestamptz);
    END IF;
END $types$;
COMMENT ON TYPE {schema}_internal.claim_candidate IS 'An execution that may be claimed again. forced: manual and PENDING, so it starts in a pause made before it. lease, reentrant: of its job. input_watermark, running_from: of its schedule. windows: it needs a window. window_start: the start of that window, once begin_windows has set it.';
COMMENT ON TYPE {schema}_internal.claimed_execution IS 'A row of claim_existing.';
COMMENT ON TYPE {schema}_internal.locked_schedule IS 'A schedule that a claim plans. ahead_of: when it is due, if that is not yet. address: the place of the row, which stays valid while the row is locked.';
