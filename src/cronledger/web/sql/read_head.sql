-- Returns the name of the database, for the head of every page. No lock. Always one row.
SELECT current_database() AS name
