-- A check-in counts for the timeline on which it was written. The first one after a failover updates the
-- identity. This is done in the trigger, because the runner's row still contains its previous check-in.
CREATE OR REPLACE FUNCTION {schema}_internal.runners_mark_timeline() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    NEW.timeline := {schema}_internal.current_timeline();
    IF EXISTS (SELECT FROM {schema}.identity i WHERE i.timeline <> NEW.timeline)
       AND {schema}_internal.other_database() IS NULL THEN
        UPDATE {schema}.identity i
        SET timeline = NEW.timeline, failed_over_from = i.timeline, recorded_at = {schema}.db_now()
        WHERE i.timeline <> NEW.timeline;
    END IF;
    RETURN NEW;
END $$;
COMMENT ON FUNCTION {schema}_internal.runners_mark_timeline() IS 'Runs before a check-in is written. Records its timeline, and a failover in identity.';
