-- Lock: the calendar, FOR SHARE. set_calendar does not have it now, because it locks the table jobs first, and the caller is
-- a trigger of jobs. If the transaction has an old snapshot of the calendar, the lock fails.
CREATE OR REPLACE FUNCTION {schema}_internal.use_calendar(job text, calendar text) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    number bigint;
BEGIN
    IF calendar IS NULL THEN
        RETURN NULL;
    END IF;
    SELECT c.revision INTO number FROM {schema}.calendars c WHERE c.name = calendar FOR SHARE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'job %: calendar % does not exist', job, quote_literal(left(calendar, 80))
            USING HINT = 'Declare it beside the job, or call {schema}.set_calendar first. To list the calendars, run SELECT name FROM {schema}.calendars.',
                  ERRCODE = 'foreign_key_violation';
    END IF;
    RETURN number;
END $$;
COMMENT ON FUNCTION {schema}_internal.use_calendar(text, text) IS 'Returns the current revision of the calendar that a job names; NULL without one. Raises if the calendar does not exist.';

-- Instead of a foreign key, because a restore may load the tables in any order.
CREATE OR REPLACE FUNCTION {schema}_internal.refuse_used_calendar() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    user_ text := (SELECT min(j.name) FROM {schema}.jobs j WHERE j.calendar = OLD.name);
BEGIN
    IF user_ IS NOT NULL THEN
        RAISE EXCEPTION 'calendar %: the job % uses it', OLD.name, user_
            USING HINT = 'Change the calendar of its jobs first: SELECT name FROM {schema}.jobs WHERE calendar = …',
                  ERRCODE = 'foreign_key_violation';
    END IF;
    RETURN OLD;
END $$;
COMMENT ON FUNCTION {schema}_internal.refuse_used_calendar() IS 'Runs before a calendar is deleted. Raises if a job uses it.';
