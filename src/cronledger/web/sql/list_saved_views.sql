-- Lists the views that a person saved, by name. No lock. Zero rows: there are none.
SELECT v.name, v.address
FROM {schema}.saved_views v
WHERE v.person = %(person)s::text
ORDER BY v.name
LIMIT %(max_rows)s
