-- Returns the token of a session of the page. No lock. Always one row. NULL: the session has ended.
SELECT {schema}.page_session(%(session)s::text) AS value
