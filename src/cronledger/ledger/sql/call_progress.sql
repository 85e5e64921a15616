-- Reports the progress of an execution under its lease. Lock: its row of execution_progress. Always one row; raises for an
-- unknown execution.
SELECT {schema}.progress(%(id)s, %(token)s, %(done)s, %(total)s, %(text)s) AS value
