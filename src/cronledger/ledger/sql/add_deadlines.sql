-- Adds deadlines that are to be judged. Lock: new rows of deadlines. Always one row.
SELECT {schema}_internal.add_deadlines(
    %(jobs)s::text[], %(kinds)s::text[], %(scopes)s::text[], %(plans)s::timestamptz[], %(policies)s::text[],
    %(revisions)s::bigint[], %(instants)s::timestamptz[], %(lengths)s::interval[], %(months)s::date[],
    %(fractions)s::float8[], %(factors)s::float8[])
