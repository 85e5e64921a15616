-- enqueue has a parameter more (55_enqueue.sql). With both functions a call would be ambiguous.
DROP FUNCTION IF EXISTS {schema}.enqueue(text, text, bigint, jsonb, text, text, uuid, text);
