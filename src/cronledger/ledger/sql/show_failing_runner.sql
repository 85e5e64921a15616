-- Returns the errors that a runner reported at its last check-in, if it could not write outcomes. No lock. Zero rows:
-- it could.
SELECT r.failing FROM {schema}.runner_status r
WHERE r.runner_id = %(runner)s AND r.state = 'failing' AND r.diagnostics -> 'failing' ? 'finisher'
