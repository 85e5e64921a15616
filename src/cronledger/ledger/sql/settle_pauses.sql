-- Edits the jobs whose pauses have begun or ended, at most `most`, and returns how many. Lock: jobs by name, SKIP LOCKED,
-- then (by trigger) their schedules by key. 0: all of them are locked, or none is left.
SELECT {schema}_internal.settle_pauses(%(most)s)
