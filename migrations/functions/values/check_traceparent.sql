CREATE OR REPLACE FUNCTION {schema}_internal.check_traceparent(job text, traceparent text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    -- Version ff, and ids of zeros only, are invalid. A later version may have further fields, which are not stored.
    IF traceparent !~ '^(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}$' THEN
        RAISE EXCEPTION 'job %: traceparent % is not a W3C trace context', job, quote_literal(left(traceparent, 80))
            USING HINT = 'Write it as 00-TRACE-SPAN-01. TRACE is 32 and SPAN is 16 lower-case hexadecimal digits. Neither may consist of zeros only. Omit the argument if there is no span.',
                  ERRCODE = 'invalid_parameter_value';
    END IF;
END $$;
COMMENT ON FUNCTION {schema}_internal.check_traceparent(text, text) IS 'Raises unless this is a traceparent of W3C Trace Context.';
