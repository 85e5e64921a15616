-- Returns the room that is left in the limited queues among these. A statement of its own after their
-- lock, because the statement that took the lock counts with an older snapshot.
SELECT q.name, (SELECT l.room FROM {schema}_internal.queue_room(q.name, q.max_running) l) AS room
FROM {schema}.queues q
WHERE q.name = ANY (%(queues)s::text[]) AND q.max_running IS NOT NULL
