-- Behind all functions and views: what they are, and who may use them, commits at once.
DO $grants$
BEGIN
    PERFORM {schema}.grant_roles();
END $grants$;
