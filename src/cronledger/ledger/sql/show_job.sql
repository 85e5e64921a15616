-- One job as it is defined, without target and payload. No lock. Zero rows: there is none of that name.
SELECT j.* FROM {schema}.job_details j WHERE j.name = %(job)s
