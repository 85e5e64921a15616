CREATE TABLE {schema}.books (title text PRIMARY KEY, shelf integer);
CREATE INDEX books_shelf ON {schema}.books (shelf);
