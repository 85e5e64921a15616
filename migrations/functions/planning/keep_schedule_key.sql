-- The constraint that a unique index on schedules would be: see schedules_key.
CREATE OR REPLACE FUNCTION {schema}_internal.keep_schedule_key() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        -- Waits for a transaction that is inserting the same key, as a unique index would.
        INSERT INTO {schema}.schedule_keys VALUES (NEW.job_name, NEW.scope_kind, NEW.scope_id) ON CONFLICT DO NOTHING;
        -- A restore of the data alone may load the keys before the schedules.
        IF FOUND OR NOT EXISTS (SELECT FROM {schema}.schedules s WHERE (s.job_name, s.scope_kind, s.scope_id)
                                    = (NEW.job_name, NEW.scope_kind, NEW.scope_id)) THEN
            RETURN NEW;
        END IF;
    ELSIF TG_OP = 'UPDATE' THEN
        RAISE EXCEPTION 'job %, scope %: the key of a schedule cannot be changed', OLD.job_name, OLD.scope_id
            USING HINT = 'Change the scopes of the job instead.', ERRCODE = 'integrity_constraint_violation';
    ELSIF TG_OP = 'DELETE' THEN
        DELETE FROM {schema}.schedule_keys k
        WHERE (k.job_name, k.scope_kind, k.scope_id) = (OLD.job_name, OLD.scope_kind, OLD.scope_id);
    ELSE
        TRUNCATE {schema}.schedule_keys;
    END IF;
    RETURN NULL;
END $$;
COMMENT ON FUNCTION {schema}_internal.keep_schedule_key() IS 'Keeps schedule_keys equal to the keys of schedules. A row whose key exists already is not inserted, and raises no error. The key of a row cannot be changed.';
