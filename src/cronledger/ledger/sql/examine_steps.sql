-- Lists the steps that have not run for much longer than usual although a replica is alive, and the session that has
-- the turn of each. No lock. Zero rows: all steps run.
SELECT s.step, {schema}.db_now() - s.taken_at AS idle_for, s.holder, s.holder_role,
       {schema}.db_now() - s.held_since AS held_for
FROM {schema}_internal.late_steps() s
