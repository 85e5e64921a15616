-- Sets the dates of the calendars of a source, in the order of their names. One row each: the name and the revision.
-- Lock: by set_calendar, the table jobs, then the calendar, then the jobs that use it by name, each with its schedules.
-- Zero rows: none was given.
SELECT c.name, {schema}.set_calendar(
           name => c.name, excluded => c.excluded, through => c.through, first => c.first, definition => c.definition,
           source => %(source)s, requested_by => %(requested_by)s) AS revision
FROM (SELECT r.* FROM jsonb_to_recordset(%(calendars)s) AS r(
          name text, excluded jsonb, through date, first date, definition jsonb)
      ORDER BY r.name COLLATE "C" OFFSET 0) c
