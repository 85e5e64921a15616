-- Deliveries of alerts have slots of their own, so a notification about them does not wake the claims of all others.
-- PostgreSQL inlines it.
CREATE OR REPLACE FUNCTION {schema}_internal.pending_note(queue text) RETURNS text LANGUAGE sql IMMUTABLE AS
    $$ SELECT CASE queue WHEN 'alerts' THEN 'alerts' ELSE 'pending' END $$;
COMMENT ON FUNCTION {schema}_internal.pending_note(text) IS 'Returns the notification for replicas that an execution of this queue waits.';
