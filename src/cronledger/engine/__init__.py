"""The engine of one replica, from a due schedule to a written outcome.

The life of an execution:

1. A schedule becomes due: `next_due_at` of its row in `schedules` is reached, by the database's
   clock. Or a client inserts a PENDING execution (`trigger`, `enqueue`).
2. `claiming` wins it. A claim locks the schedule, decides which of its plan_times run, and inserts
   them as RUNNING with a new lease token. PENDING executions, retries and stale leases are claimed
   as they are. The cursor, the executions and the skips commit together.
3. The claim returns a `lease.Lease`: the right to write this execution until a deadline. The
   deadline counts from the instant before the claim was sent, so it lies before the database's
   `stale_after`.
4. `running.executor` calls the handler, one asyncio task per execution. `running.heartbeats`
   extends the leases from a thread of its own. It stops the handlers whose lease is lost or
   expired, and those whose cancellation was requested.
5. The handler ends. `rules.outcome` decides between SUCCESS, a retry and the final FAILED or
   CANCELLED.
6. `running.finisher` writes the outcome. The write matches the token, so a lost lease cannot write.
   A transaction of its own then re-arms the schedules that waited for this execution.
7. If the replica dies, its lease expires. Another replica steals it if the job is reentrant.
   Otherwise `maintenance.sweeper` writes FAILED, because the end of the attempt is unknown.

Lock order: queues, jobs, schedules, executions, and rows of one table by key. A statement that goes
against this order uses SKIP LOCKED, and a row that it could not lock is not claimed this time. A
statement that waited for a lock still sees the state before the wait. So a transaction locks first,
and then reads in a new statement.

A package imports only packages below its own (`lint-imports` checks this):

    runtime                           builds and connects the components, drives loops, drains
    claiming, running, maintenance    independent of each other
    commands                          the supervisor process and its commands
    lease, event, clock, ...          modules of `engine` itself, independent of each other

`claiming` creates leases, `running` uses and ends them. They share only `lease`. A component
reports to others by an `event.Event`; `runtime.reactions` lists the reactions. Every loop is a
`step()` that returns how long it may sleep. `runtime.loops` does the sleeping, and retries after
errors.
"""
