CREATE OR REPLACE FUNCTION {schema}_internal.check_partition(job text, plan_time timestamptz) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    -- Reading the bounds of all partitions costs more than the INSERT of a row, so the bounds of the last one
    -- are kept for the session. If that partition is dropped meanwhile, the INSERT fails.
    kept   text[] := string_to_array(current_setting('cronledger.partition', true), ' ');
    parent text := '{schema}.executions'::regclass::oid::text;
    at     double precision := extract(epoch FROM plan_time);
    found  record;
BEGIN
    IF kept[1] = parent AND kept[2]::double precision <= at AND kept[3]::double precision > at THEN
        RETURN;
    END IF;
    SELECT p.from_plan_time, p.before_plan_time INTO found FROM {schema}.partitions() p
    WHERE p.from_plan_time <= plan_time AND p.before_plan_time > plan_time;
    IF found.from_plan_time IS NULL THEN
        RAISE EXCEPTION 'job %: executions has no partition for plan_time %', job, plan_time
            USING HINT = 'Start a replica, or run SELECT * FROM {schema}.maintain_partitions().',
                  ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    PERFORM set_config('cronledger.partition', concat_ws(' ', parent, extract(epoch FROM found.from_plan_time),
                                                         extract(epoch FROM found.before_plan_time)), false);
END $$;
COMMENT ON FUNCTION {schema}_internal.check_partition(text, timestamptz) IS 'Raises unless executions has a partition for this plan_time.';
