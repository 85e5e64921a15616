-- Begins a session of the page. Locks: those of the function. Always one row.
SELECT {schema}.begin_page_session(%(session)s::text, %(token)s::text, %(lifetime)s::interval) AS value
