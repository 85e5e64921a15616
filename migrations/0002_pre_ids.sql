-- Identities that no restore can bring back under another meaning. A number recurs: after a restore
-- the next edit of a job gets the number of an edit that is lost. A random id does not.

ALTER TABLE {schema}.job_revisions ADD COLUMN id uuid NOT NULL DEFAULT gen_random_uuid();
COMMENT ON COLUMN {schema}.job_revisions.id IS 'Random. After a restore a new revision gets the number of a lost one, but never its id: replicas recognize a revision that they have read by its id.';

ALTER TABLE {schema}.identity ADD COLUMN ledger_id uuid NOT NULL DEFAULT gen_random_uuid(),
    ADD COLUMN copy_of uuid;
COMMENT ON COLUMN {schema}.identity.ledger_id IS 'Random. Identifies the ledger, wherever its database is: replicas work only in the ledger that they began with. A failover, a restore and accept_database(false) keep it; accept_database(true) gives the copy one of its own.';
COMMENT ON COLUMN {schema}.identity.copy_of IS 'The ledger_id of the original, of which this is an accepted copy; NULL: this is no accepted copy.';
