-- Bounds of the buckets: the powers of the root of 2, rounded up. The quotient of two values in one bucket is
-- less than 1.42, so their geometric mean is wrong by 19 % at most.
CREATE OR REPLACE FUNCTION {schema}_internal.bucket_bounds() RETURNS bigint[] LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT ARRAY[
        1, 2, 3, 4, 6, 8, 12, 16, 23, 32, 46, 64, 91, 128, 182, 256, 363, 512, 725, 1024, 1449,
        2048, 2897, 4096, 5793, 8192, 11586, 16384, 23171, 32768, 46341, 65536, 92682, 131072,
        185364, 262144, 370728, 524288, 741456, 1048576, 1482911, 2097152, 2965821, 4194304,
        5931642, 8388608, 11863284, 16777216, 23726567, 33554432, 47453133, 67108864, 94906266,
        134217728]::bigint[]
$$;
COMMENT ON FUNCTION {schema}_internal.bucket_bounds() IS 'Returns the least value of each bucket from the second on, in milliseconds. The first bucket holds 0.';

CREATE OR REPLACE FUNCTION {schema}.estimated_quantile(counts bigint[], share double precision)
RETURNS double precision LANGUAGE sql IMMUTABLE PARALLEL SAFE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN r.bucket = 1 THEN 0
                ELSE sqrt(b.bounds[r.bucket - 1] * coalesce(b.bounds[r.bucket] - 1, b.bounds[r.bucket - 1])::double precision) END
    FROM (SELECT {schema}_internal.bucket_bounds() AS bounds) b,
         (SELECT u.bucket::integer AS bucket, sum(u.count) OVER (ORDER BY u.bucket) AS upto,
                 sum(u.count) OVER () AS total
          FROM unnest(counts) WITH ORDINALITY u(count, bucket)) r
    WHERE r.total > 0 AND r.upto >= greatest(1, ceil(r.total * share::numeric))
    ORDER BY r.bucket LIMIT 1
$$;
COMMENT ON FUNCTION {schema}.estimated_quantile(bigint[], double precision) IS 'Estimates a quantile, such as 0.95, in milliseconds, from duration_counts or late_counts of execution_hours, or from the sums of several of them by element. The estimate is wrong by 19 % at most, and exact for 0 to 3 ms. Bucket 1 holds 0; bucket n holds values from the (n-1)th bound on; the bounds are the powers of the root of 2, rounded up: 1, 2, 3, 4, 6, 8, 12, 16, 23, 32 and so on. NULL: there are no values.';
