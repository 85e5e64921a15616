-- Operator function: the dates of a calendar. An edit becomes an edit of each job that uses it.
-- Lock order: the table jobs in SHARE ROW EXCLUSIVE mode, if something changes, then the calendar, then the jobs by name,
-- each with its schedules. The mode keeps out whoever writes jobs, because a job that is added at the same time would keep
-- the old dates. Claims are not kept out: they read jobs, and lock rows of it.

CREATE OR REPLACE FUNCTION {schema}_internal.check_calendar(
    name text, excluded jsonb, first date, through date, definition jsonb)
RETURNS void LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
    days integer := CASE jsonb_typeof(excluded) WHEN 'object' THEN (SELECT count(*) FROM jsonb_each(excluded)) END;
    odd  record;
    bad  text := CASE
        WHEN name IS NULL OR length(name) NOT BETWEEN 1 AND 200 THEN 'name: it is not 1 to 200 characters long'
        WHEN days IS NULL THEN 'excluded: it is not a JSON object'
        WHEN days > 20000 THEN format('excluded: it has %s dates; the limit is 20000', days)
        WHEN isfinite(first) IS NOT TRUE THEN 'first: it is not a date'
        WHEN isfinite(through) IS NOT TRUE THEN 'through: it is not a date'
        WHEN through - first NOT BETWEEN 0 AND 36525 OR first < '1000-01-01' OR through >= '9999-01-01'
            THEN format('through %s: it is not 0 to 36525 days after first %s, in the years 1000 to 9998',
                        to_char(through, 'YYYY-MM-DD'), to_char(first, 'YYYY-MM-DD'))
        WHEN jsonb_typeof(definition) <> 'object' THEN 'definition: it is not a JSON object'
        WHEN octet_length(definition::text) > 1000000
            THEN format('definition: it has %s bytes of JSON; the limit is 1000000', octet_length(definition::text))
    END;
BEGIN
    IF bad IS NULL THEN
        SELECT e.key, e.value, d.date IS NOT NULL AS known INTO odd
        FROM jsonb_each(excluded) e
        LEFT JOIN (SELECT to_char(g.day, 'YYYY-MM-DD') AS date
                   FROM generate_series(first::timestamp, through::timestamp, interval '1 day') g(day)) d ON d.date = e.key
        WHERE d.date IS NULL OR jsonb_typeof(e.value) <> 'string' OR length(e.value #>> '{}') NOT BETWEEN 1 AND 200
           OR {schema}_internal.name_problem(e.value #>> '{}') IS NOT NULL
        ORDER BY e.key COLLATE "C" LIMIT 1;
        IF FOUND THEN
            bad := CASE WHEN odd.known
                THEN format('excluded %s: %s is not a name of 1 to 200 characters without control characters, and without white space at its ends',
                            odd.key, left(odd.value::text, 60))
                ELSE format('excluded %s: it is not a date from %s to %s', quote_literal(left(odd.key, 60)),
                            to_char(first, 'YYYY-MM-DD'), to_char(through, 'YYYY-MM-DD')) END;
        END IF;
    END IF;
    IF bad IS NOT NULL THEN
        RAISE EXCEPTION 'calendar %: %', coalesce(left(name, 80), 'NULL'), bad
            USING HINT = 'Write dates with their names, such as {"2027-12-25": "Christmas Day"}, and the first and last date that they cover.',
                  ERRCODE = 'invalid_parameter_value';
    END IF;
    PERFORM {schema}_internal.check_name('calendar', name);
END $$;
COMMENT ON FUNCTION {schema}_internal.check_calendar(text, jsonb, date, date, jsonb) IS 'Raises unless these can be the dates of a calendar. first and through: the range that it knows.';

CREATE OR REPLACE FUNCTION {schema}_internal.calendar_in_force(name text) RETURNS {schema}.calendar_revisions
LANGUAGE sql STABLE AS $$
    SELECT r.* FROM {schema}.calendars c
    JOIN {schema}.calendar_revisions r ON (r.calendar_name, r.revision) = (c.name, c.revision)
    WHERE c.name = calendar_in_force.name
$$;
COMMENT ON FUNCTION {schema}_internal.calendar_in_force(text) IS 'Returns the current revision of a calendar; NULL: there is none.';

CREATE OR REPLACE FUNCTION {schema}_internal.check_calendar_source(name text, source text) RETURNS void
LANGUAGE plpgsql AS $$
#variable_conflict use_variable
DECLARE
    owner text := (SELECT c.source FROM {schema}.calendars c WHERE c.name = name);
BEGIN
    IF owner <> coalesce(source, '') THEN
        RAISE EXCEPTION 'calendar %: it belongs to the source %', name, owner
            USING HINT = format('Change it there, because the next apply would undo another change. To take it over, pass source => %L.', owner),
                  ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
END $$;
COMMENT ON FUNCTION {schema}_internal.check_calendar_source(text, text) IS 'Raises if the calendar belongs to another source.';

CREATE OR REPLACE FUNCTION {schema}.set_calendar(
    name text, excluded jsonb, through date, first date DEFAULT NULL, definition jsonb DEFAULT NULL,
    source text DEFAULT NULL, requested_by text DEFAULT NULL)
RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
    requester text := coalesce(requested_by, session_user);
    present   {schema}.calendar_revisions := {schema}_internal.calendar_in_force(name);
    job       text;
    jobs      bigint := 0;
    began     boolean;
BEGIN
    PERFORM {schema}_internal.require_read_committed('set_calendar');
    first := coalesce(first, present.first, date_trunc('year', {schema}.db_now(), 'UTC')::date);
    PERFORM {schema}_internal.check_calendar(name, excluded, first, through, definition);
    PERFORM {schema}_internal.check_calendar_source(name, source);
    IF (present.first, present.through, present.excluded, present.definition, (
            SELECT c.source FROM {schema}.calendars c WHERE c.name = name))
       IS NOT DISTINCT FROM (first, through, excluded, definition, source) THEN
        RETURN present.revision;
    END IF;
    LOCK TABLE {schema}.jobs IN SHARE ROW EXCLUSIVE MODE;
    -- Another call may have been first. Since the lock, nothing of this changes any more.
    present := {schema}_internal.calendar_in_force(name);
    PERFORM {schema}_internal.check_calendar_source(name, source);
    began := {schema}_internal.begin_action();
    IF (present.first, present.through, present.excluded, present.definition)
       IS NOT DISTINCT FROM (first, through, excluded, definition) THEN
        UPDATE {schema}.calendars c SET source = source WHERE c.name = name;
    ELSE
        present.revision := 1 + coalesce((SELECT max(r.revision) FROM {schema}.calendar_revisions r
                                          WHERE r.calendar_name = name), 0);
        INSERT INTO {schema}.calendar_revisions
            (calendar_name, revision, created_at, first, through, excluded, definition, requested_by)
        VALUES (name, present.revision, {schema}.db_clock(), first, through, excluded, definition, requester);
        INSERT INTO {schema}.calendars AS c (name, revision, source) VALUES (name, present.revision, source)
        ON CONFLICT ON CONSTRAINT calendars_pkey DO UPDATE SET revision = EXCLUDED.revision, source = EXCLUDED.source;
        -- The trigger of each job takes the new revision. A retired job takes it when it returns.
        FOR job IN SELECT j.name FROM {schema}.jobs j WHERE j.calendar = name AND j.retired_at IS NULL
                   ORDER BY j.name FOR NO KEY UPDATE LOOP
            UPDATE {schema}.jobs j SET edited_by = requester WHERE j.name = job;
            jobs := jobs + 1;
        END LOOP;
    END IF;
    PERFORM {schema}_internal.end_action(began);
    PERFORM {schema}_internal.record_action('set_calendar', 'calendar', name, requester, 'done',
        arguments => jsonb_build_object(
            'revision', present.revision, 'first', first, 'through', through,
            'excluded', (SELECT count(*) FROM jsonb_each(excluded)), 'source', source, 'jobs', jobs));
    RETURN present.revision;
END $$;
COMMENT ON FUNCTION {schema}.set_calendar(text, jsonb, date, date, jsonb, text, text) IS 'Sets the dates of a calendar, and returns its revision. excluded: every excluded date from first to through, with the name of the day, such as {"2027-12-25": "Christmas Day"}. first: by default that of the current revision, or January 1 of this year. definition: the declaration from which the dates were computed, for people. source: the file or App that declares it. Without a change, nothing is written. Otherwise each job that uses the calendar gets a revision, and the new dates count from the COMMIT on. Raises if the calendar belongs to another source.';
