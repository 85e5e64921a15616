-- Edits jobs whose pauses have begun or ended, until it has edited `most` of their schedules, and returns how many jobs.
-- Lock: jobs by name, SKIP LOCKED, then (by trigger) their schedules by key. 0: all of them are locked, or none is left.
SELECT {schema}_internal.settle_pauses(%(most)s)
