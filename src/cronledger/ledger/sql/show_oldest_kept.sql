-- Where the ledger begins: the first plan_time that its oldest partition can hold. No lock. One row;
-- NULL: it has none.
SELECT min(p.from_plan_time) AS oldest FROM {schema}.partitions() p
