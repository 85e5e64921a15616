-- rearm_unblocked returns more columns; CREATE OR REPLACE cannot change what a function returns.
DROP FUNCTION IF EXISTS {schema}_internal.rearm_unblocked(text[], text[], text[], text[]);
