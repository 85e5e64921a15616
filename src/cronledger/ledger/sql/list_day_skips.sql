-- Lists the skips of one scope whose ranges reach into [start, end), in their order. Ranges of one scope do
-- not overlap, so of the earlier ones only the last can do so. A day has at most one range per second. No
-- lock. Zero rows: there are none.
(SELECT b.from_plan_time, b.through_plan_time, b.count, b.reason, b.detail, b.blocked_by, b.created_at
 FROM (
     SELECT k.* FROM {schema}.verify_skips k
     WHERE (k.job_name, k.scope_kind, k.scope_id) = (%(job)s, %(kind)s, %(scope)s)
       AND k.from_plan_time < %(start)s
     ORDER BY k.from_plan_time DESC LIMIT 1
 ) b
 WHERE b.through_plan_time >= %(start)s)
UNION ALL
(SELECT k.from_plan_time, k.through_plan_time, k.count, k.reason, k.detail, k.blocked_by, k.created_at
 FROM {schema}.verify_skips k
 WHERE (k.job_name, k.scope_kind, k.scope_id) = (%(job)s, %(kind)s, %(scope)s)
   AND k.from_plan_time >= %(start)s AND k.from_plan_time < %(end)s
 ORDER BY k.from_plan_time)
