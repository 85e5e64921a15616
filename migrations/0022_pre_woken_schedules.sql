-- lock_due_schedules no longer locks the schedules that were woken (functions/54_claim_look.sql).
DROP FUNCTION IF EXISTS {schema}_internal.lock_due_schedules(text[], text[], integer, integer, interval);
