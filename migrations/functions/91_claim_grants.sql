-- What replicas and workers in other languages call to claim; behind the REVOKE of 90_roles.sql.
DO $grants$
BEGIN
    IF EXISTS (SELECT FROM pg_roles p WHERE p.rolname = 'cronledger_runner') THEN
        GRANT EXECUTE ON FUNCTION
            {schema}.most_steals(),
            {schema}.lock_due_again(text[], text[], text[], boolean, text[], integer),
            {schema}.lock_stale(text[], text[], text[], boolean, text[], timestamptz, integer),
            {schema}.choose_again({schema}.due_again[], text[], text[], integer),
            {schema}.try_claim_again(text, {schema}.due_again[], uuid[], timestamptz, timestamptz, timestamptz),
            {schema}.name_refusal(text, text),
            {schema}.take_again(text, {schema}.due_again[], uuid[], timestamptz),
            {schema}.claim_due(text, text[], text[], text[], uuid[], timestamptz, boolean, text[], integer),
            {schema}.claim_next(text, text, integer), {schema}.heartbeat(bigint, uuid, interval),
            {schema}.finish(bigint, uuid, jsonb), {schema}.finish(bigint, uuid, jsonb, bigint),
            {schema}.fail(bigint, uuid, text, text, jsonb, interval, boolean),
            {schema}.release(bigint, uuid)
            TO cronledger_runner;
    END IF;
END $grants$;
