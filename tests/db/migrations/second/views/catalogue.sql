CREATE OR REPLACE VIEW {schema}.catalogue AS SELECT b.title, b.place FROM {schema}.books b;
