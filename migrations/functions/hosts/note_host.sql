-- Part of each check-in. Lock: the row of the host, waiting; a claim that records an absence of the host holds it.
-- A label stays for 10 minutes after the last replica that had it, whether that one was stopped or died. Otherwise
-- the restart of one of two replicas in a deploy would retire the scope of the host.
-- The clock is read after the lock, so the absence ends after every claim that has seen it.
CREATE OR REPLACE FUNCTION {schema}_internal.note_host(
    of_host text, of_runner text, of_labels text[], ttl interval, boot text DEFAULT NULL, uptime interval DEFAULT NULL)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    before {schema}.hosts;
    at     timestamptz;
    known  text[];
BEGIN
    SELECT h.* INTO before FROM {schema}.hosts h WHERE h.name = of_host FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        INSERT INTO {schema}.hosts (name, present_through) VALUES (of_host, '1970-01-01Z') ON CONFLICT DO NOTHING;
        SELECT h.* INTO STRICT before FROM {schema}.hosts h WHERE h.name = of_host FOR NO KEY UPDATE;
    END IF;
    at := {schema}.db_clock();
    known := before.labels;
    IF known <> of_labels THEN
        known := ARRAY(
            SELECT l.label FROM unnest(of_labels) l(label)
            UNION SELECT l.label FROM {schema}.runners r CROSS JOIN unnest(r.labels) l(label)
            WHERE r.host = of_host AND r.id <> of_runner AND r.stale_after > at - interval '10 minutes'
              AND r.version <> 'external'
            ORDER BY 1);
    END IF;
    IF before.present_through < at THEN
        INSERT INTO {schema}.host_absences (host, from_at, until_at) VALUES (of_host, before.checked_in_at, at);
    END IF;
    UPDATE {schema}.hosts h
    SET labels = known, retired_at = NULL, retired_by = NULL,
        present_from = CASE WHEN before.present_through < at THEN at ELSE before.present_from END,
        checked_in_at = greatest(before.checked_in_at, at),
        present_through = greatest(before.present_through, at + ttl)
    WHERE h.name = of_host;
    UPDATE {schema}.host_boots b SET reported_at = at
    WHERE b.host = of_host AND b.boot_id = boot AND b.reported_at < at - interval '1 hour';
    IF boot IS NOT NULL AND NOT EXISTS (
        SELECT FROM {schema}.host_boots b
        WHERE b.host = of_host AND b.boot_id = boot AND b.plan_time IS NOT NULL) THEN
        PERFORM {schema}_internal.note_boot(of_host, boot, at - uptime, at);
    END IF;
END $$;
COMMENT ON FUNCTION {schema}_internal.note_host(text, text, text[], interval, text, interval) IS 'Notes that a runner of this host has checked in, and that the host counts as present for ttl. An absence before that is recorded. Its labels are those of this runner, and of others that counted in the last 10 minutes. A retired host returns. boot: the id of its boot, which was uptime ago; NULL: unknown.';
