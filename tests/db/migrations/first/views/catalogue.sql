CREATE OR REPLACE VIEW {schema}.catalogue AS SELECT b.title, b.shelf::text AS place FROM {schema}.books b;
