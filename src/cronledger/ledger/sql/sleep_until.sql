-- Waits until the database's clock shows `at`, but no longer than `at_most`: the clock may have leapt. A
-- statement of its own, because db_now() of the next one is the start of that one. A microsecond longer,
-- because the server adds in floating point. Returns the seconds, for simulations. No lock.
SELECT pg_sleep(w.seconds), w.seconds
FROM (SELECT extract(epoch FROM least(
          %(at_most)s, greatest(%(at)s - {schema}.db_clock(), interval '0') + interval '1 us'))::float8 AS seconds) w
