-- Ends a session of the page. Locks: those of the function. Always one row. False: it had ended already.
SELECT {schema}.end_page_session(%(session)s::text) AS value
