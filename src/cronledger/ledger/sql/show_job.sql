-- The whole row of one job. No lock. Zero rows: there is none of that name.
SELECT j.* FROM {schema}.jobs j WHERE j.name = %(job)s
