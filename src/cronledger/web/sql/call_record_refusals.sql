-- Records that an operator function refused a call, once for each of these arguments. Locks: those of the function
-- record_refusal, none of which waits. One row for each.
SELECT {schema}.record_refusal(%(verb)s::text, a.arguments, %(error)s::text,
                               requested_by => %(requested_by)s::text) AS value
FROM unnest(%(arguments)s::jsonb[]) a(arguments)
