-- Saved views of the web page. A viewer may call these functions too, because a view belongs to the person alone. They
-- write only saved_views, whose addresses lead only to the page Ledger.
-- Lock: save_view locks saved_views, and waits only for other calls of save_view and delete_view.

CREATE OR REPLACE FUNCTION {schema}_internal.check_view(person text, view text, address text)
RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF view = '' THEN
        RAISE EXCEPTION 'the name of the view is empty'
            USING HINT = 'Write a name of at most 80 characters.', ERRCODE = 'invalid_parameter_value';
    ELSIF char_length(view) > 80 THEN
        RAISE EXCEPTION 'the name of the view has % characters', char_length(view)
            USING HINT = 'Use at most 80 characters.', ERRCODE = 'invalid_parameter_value';
    ELSIF char_length(person) > 300 THEN
        RAISE EXCEPTION 'the name of the person has % characters', char_length(person)
            USING HINT = 'Sign in with a name of at most 300 characters.', ERRCODE = 'invalid_parameter_value';
    ELSIF char_length(address) > 2000 THEN
        RAISE EXCEPTION 'the address of the view has % characters', char_length(address)
            USING HINT = 'Use shorter filters: an address has at most 2,000 characters.',
                  ERRCODE = 'invalid_parameter_value';
    ELSIF address !~ '^/ledger([?][!-~]+)?$' THEN
        RAISE EXCEPTION 'address % is not an address of the page Ledger', quote_literal(left(address, 80))
            USING HINT = 'Write /ledger with an encoded query, such as /ledger?outcome=FAILED.',
                  ERRCODE = 'invalid_parameter_value';
    END IF;
    PERFORM {schema}_internal.check_name('view', view);
END $$;
COMMENT ON FUNCTION {schema}_internal.check_view(text, text, text) IS 'Raises if the person, the name or the address of a saved view is invalid.';

CREATE OR REPLACE FUNCTION {schema}.save_view(view text, address text, requested_by text DEFAULT NULL)
RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
    person CONSTANT text := coalesce(requested_by, session_user::text);
    is_new boolean;
BEGIN
    PERFORM {schema}_internal.check_view(person, view, address);
    -- Otherwise two calls at once could exceed the limit.
    LOCK TABLE {schema}.saved_views IN SHARE ROW EXCLUSIVE MODE;
    is_new := NOT EXISTS (SELECT FROM {schema}.saved_views v WHERE v.person = person AND v.name = view);
    IF is_new AND (SELECT count(*) FROM {schema}.saved_views v WHERE v.person = person) >= 50 THEN
        RAISE EXCEPTION '% has 50 saved views already', person
            USING HINT = 'Delete a view first, or save under the name of an existing view to replace it.',
                  ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    IF is_new AND (SELECT count(*) FROM {schema}.saved_views) >= 1000 THEN
        RAISE EXCEPTION 'the ledger has 1,000 saved views already'
            USING HINT = 'Delete views that nobody needs. Operators can use SQL to delete the views of people who have left.',
                  ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    INSERT INTO {schema}.saved_views AS v (person, name, address, created_at)
    VALUES (person, view, address, {schema}.db_clock())
    ON CONFLICT ON CONSTRAINT saved_views_pkey
        DO UPDATE SET address = excluded.address, created_at = excluded.created_at;
    RETURN is_new;
END $$;
COMMENT ON FUNCTION {schema}.save_view(text, text, text) IS 'Saves an address of the page Ledger under a name, for one person. Replaces a view of this name, and then returns false. The web page calls this function.';

CREATE OR REPLACE FUNCTION {schema}.delete_view(view text, requested_by text DEFAULT NULL)
RETURNS boolean LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    DELETE FROM {schema}.saved_views v
    WHERE v.person = coalesce(requested_by, session_user::text) AND v.name = view;
    RETURN FOUND;
END $$;
COMMENT ON FUNCTION {schema}.delete_view(text, text) IS 'Deletes a saved view of one person. Returns false if there is no such view. The web page calls this function.';
