-- Begins the planned pauses that are due, and returns how many. Lock: the pauses by id, waiting (see the function).
SELECT {schema}_internal.begin_pauses()
