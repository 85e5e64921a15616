-- SECURITY DEFINER, because doctor runs with the rights of a viewer.
CREATE OR REPLACE FUNCTION {schema}_internal.unconfirmed_failover()
RETURNS TABLE (was integer, now integer, at timestamptz)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN i.timeline = c.timeline THEN i.failed_over_from ELSE i.timeline END, c.timeline,
           CASE WHEN i.timeline = c.timeline THEN i.recorded_at END
    FROM {schema}.identity i, {schema}_internal.current_timeline() c(timeline)
    WHERE (i.timeline <> c.timeline OR i.failed_over_from IS NOT NULL) AND NOT pg_is_in_recovery()
$$;
COMMENT ON FUNCTION {schema}_internal.unconfirmed_failover() IS 'Returns the change of the timeline that was trusted as a failover, and that no person has confirmed; at: when a check-in recorded it, NULL: none has. Zero rows: there is none.';
