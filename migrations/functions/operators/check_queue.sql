CREATE OR REPLACE FUNCTION {schema}_internal.check_queue(queue text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    -- A pause of a misspelt queue would have no effect and no error.
    IF NOT EXISTS (SELECT FROM {schema}.queues q WHERE q.name = check_queue.queue)
       AND NOT EXISTS (SELECT FROM {schema}.jobs j WHERE j.queue = check_queue.queue)
       AND NOT EXISTS (SELECT FROM {schema}.runners r WHERE check_queue.queue = ANY (r.queues)
                       AND r.stale_after > {schema}.db_clock() - interval '1 day') THEN
        RAISE EXCEPTION 'queue %: no job and no runner uses it', queue
            USING HINT = 'To list the queues, run SELECT name FROM {schema}.queue_status.',
                  ERRCODE = 'no_data_found';
    END IF;
END $$;
COMMENT ON FUNCTION {schema}_internal.check_queue(text) IS 'Raises unless a job, a runner or the table queues has this queue.';
