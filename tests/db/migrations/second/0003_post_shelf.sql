UPDATE {schema}.books SET place = coalesce(place, shelf::text);
ALTER TABLE {schema}.books DROP COLUMN shelf;
