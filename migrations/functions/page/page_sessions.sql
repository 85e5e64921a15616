-- Sessions of the web page. A viewer may call these functions too, because a page may have no other login. They
-- write nothing but page_sessions, and a session is worth nothing without a token of the settings of the page.
-- Lock: none that waits for another action.

CREATE OR REPLACE FUNCTION {schema}.begin_page_session(session text, token text, lifetime interval)
RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
    at CONSTANT timestamptz := {schema}.db_clock();
BEGIN
    -- The newest 100 of a token are kept, so that the table does not grow without end.
    DELETE FROM {schema}.page_sessions s
    WHERE s.id IN (SELECT o.id FROM {schema}.page_sessions o
                   WHERE o.expires_at <= at OR o.id IN (
                       SELECT n.id FROM {schema}.page_sessions n WHERE n.token = token
                       ORDER BY n.created_at DESC, n.id OFFSET 99)
                   ORDER BY o.id FOR UPDATE SKIP LOCKED);
    INSERT INTO {schema}.page_sessions (id, token, created_at, expires_at)
    VALUES (session, token, at, at + least(lifetime, interval '90 days'));
END $$;
COMMENT ON FUNCTION {schema}.begin_page_session(text, text, interval) IS 'Begins a session of the web page, which calls this function. session, token: SHA-256 values.';

CREATE OR REPLACE FUNCTION {schema}.page_session(session text)
RETURNS text LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT s.token FROM {schema}.page_sessions s WHERE s.id = session AND s.expires_at > {schema}.db_now()
$$;
COMMENT ON FUNCTION {schema}.page_session(text) IS 'Returns the token of a session of the web page; NULL: the session has ended or never existed.';

CREATE OR REPLACE FUNCTION {schema}.end_page_session(session text)
RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    DELETE FROM {schema}.page_sessions s WHERE s.id = session;
    RETURN FOUND;
END $$;
COMMENT ON FUNCTION {schema}.end_page_session(text) IS 'Ends a session of the web page. Returns false if it has ended already.';
