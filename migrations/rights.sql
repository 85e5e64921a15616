-- After all functions and views, so that they and their grants are committed together.
DO $grants$
BEGIN
    PERFORM {schema}.grant_roles();
END $grants$;
