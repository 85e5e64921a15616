-- Records in the audit trail that an operator function refused a call. No lock that waits. Always one row.
SELECT {schema}.record_refusal(%(verb)s::text, %(arguments)s::jsonb, %(error)s::text,
                               requested_by => %(requested_by)s::text) AS value
