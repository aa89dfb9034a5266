-- Turns: jobs with a tenant are not taken by their age but in rounds. In each round, every tenant that has due jobs gets as many as its weight,
-- its oldest first. Turns are taken within a lane (queue, kind, priority); jobs that are parked for a limit take theirs with those of the lane.
--
-- Nothing is stored for it but the weights. A claim goes through the tenants in the order of the index, one look-up for each, from where the
-- last claim of its session ended. That place is a setting of the session: '2 acme' after the second job of acme in this round, '* acme' after
-- its last; it is empty again after a claim that was rolled back. A session without it begins at a tenant at random, so that workers which start together are not all at the same place.

-- Tenants whose weight is not 1.
CREATE TABLE holdfast.tenant (
    name   text COLLATE "C" PRIMARY KEY CHECK (octet_length(name) BETWEEN 1 AND 500),
    weight integer NOT NULL CHECK (weight BETWEEN 1 AND 1000)
);

-- Gives a tenant so many jobs in each round.
-- Called by applications.
CREATE FUNCTION holdfast.set_weight(tenant text, weight integer) RETURNS void
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM holdfast.refuse('tenant: 1 to 500 bytes of text expected, got ' || coalesce('another length', 'null'))
    WHERE octet_length(tenant) BETWEEN 1 AND 500 IS NOT TRUE;
    PERFORM holdfast.refuse('weight: a number from 1 to 1000 expected, got ' || coalesce(weight::text, 'null'))
    WHERE weight BETWEEN 1 AND 1000 IS NOT TRUE;
    IF weight = 1 THEN
        DELETE FROM holdfast.tenant t WHERE t.name = set_weight.tenant;
    ELSE
        INSERT INTO holdfast.tenant AS t (name, weight) VALUES (set_weight.tenant, set_weight.weight)
        ON CONFLICT (name) DO UPDATE SET weight = excluded.weight;
    END IF;
END $$;

-- The setting with the place of one lane.
-- Called by next_turns, take_turns, order_by_turns.
CREATE FUNCTION holdfast.turn_setting(queue text, kind text, level smallint) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN 'holdfast.turn_' || to_hex(hashtextextended(concat_ws(chr(1), queue, kind, level), 0));

-- A text between the names of two tenants, at random from the first character on in which they differ.
-- Called by next_turns.
CREATE FUNCTION holdfast.text_between(low text, high text) RETURNS text
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    same integer := 0;
    least_code integer;
BEGIN
    WHILE same < length(low) AND substr(low, same + 1, 1) = substr(high, same + 1, 1) LOOP
        same := same + 1;
    END LOOP;
    IF same = length(high) THEN
        RETURN low;
    END IF;
    least_code := CASE WHEN same < length(low) THEN ascii(substr(low, same + 1, 1)) ELSE 32 END;
    RETURN left(low, same) || chr(least_code + floor(random() * (ascii(substr(high, same + 1, 1)) - least_code + 1))::integer)
        || left(md5(random()::text), 8);
END $$;

-- Locks the next jobs of one lane by turns, and returns them in that order, and the place behind the last.
--   waits, key   pending and '', or blocked and the key for which they are parked
--   level        null: of all priorities, the most urgent first; then no place is returned
--   passed_by    jobs to leave alone
-- Returns separately those with an order key or limits, about which more has to be decided.
-- Called by take_limited, take_turns.
CREATE FUNCTION holdfast.next_turns(waits holdfast.status, key text, queue text, kind text, level smallint, most integer,
    shard_from smallint, shard_to smallint, passed_by bigint[], OUT rows tid[], OUT keyed bigint[], OUT at_place text)
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp
    SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
    SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_variable
DECLARE
    last_place text := current_setting(holdfast.turn_setting(queue, kind, level), true);
    begin_at text COLLATE "C";
    used integer := 0;              -- of the weight of the tenant to begin with
    reached integer := most;        -- go through tenants until the sum of their weights is so much
    times integer := 1;
    got integer;
    total integer;
    more boolean;
    next record;
BEGIN
    rows := '{}'; keyed := '{}';
    IF level IS NULL THEN
        level := -1;
        WHILE most > 0 LOOP
            level := (SELECT t.priority FROM holdfast.job t WHERE t.tenant IS NOT NULL AND t.locked_by IS NULL AND t.later IS NULL AND t.queue = queue AND t.kind = kind
                AND t.status = waits AND coalesce(CASE WHEN t.status = 'blocked' THEN t.limit_key END, '') = key
                AND t.priority > level ORDER BY t.priority LIMIT 1);
            EXIT WHEN level IS NULL;
            SELECT * INTO next FROM holdfast.next_turns(waits, key, queue, kind, level, most, shard_from, shard_to, passed_by) AS n;
            rows := rows || next.rows; keyed := keyed || next.keyed;
            most := most - cardinality(next.rows) - cardinality(next.keyed);
        END LOOP;
        RETURN;
    END IF;
    IF last_place <> '' THEN
        begin_at := substr(last_place, strpos(last_place, ' ') + 1);
        IF left(last_place, 1) = '*' THEN
            -- Byte by byte, nothing lies between a name and that name with the smallest character behind it.
            begin_at := begin_at || chr(1);
        ELSE
            used := split_part(last_place, ' ', 1)::integer;
        END IF;
    ELSE
        begin_at := holdfast.text_between(
            (SELECT t.tenant FROM holdfast.job t WHERE t.tenant IS NOT NULL AND t.locked_by IS NULL AND t.later IS NULL AND t.queue = queue AND t.kind = kind
                AND t.status = waits AND coalesce(CASE WHEN t.status = 'blocked' THEN t.limit_key END, '') = key AND t.priority = level
             ORDER BY t.tenant LIMIT 1),
            (SELECT t.tenant FROM holdfast.job t WHERE t.tenant IS NOT NULL AND t.locked_by IS NULL AND t.later IS NULL AND t.queue = queue AND t.kind = kind
                AND t.status = waits AND coalesce(CASE WHEN t.status = 'blocked' THEN t.limit_key END, '') = key AND t.priority = level
             ORDER BY t.tenant DESC LIMIT 1));
    END IF;
    LOOP
        WITH RECURSIVE walk AS (
            SELECT 1 AS n, f.tenant, f.tenant AS first, false AS past_end, f.weight, f.had, f.weight - f.had AS total
            FROM (SELECT s.tenant, coalesce(w.weight, 1) AS weight,
                      CASE WHEN s.tenant = begin_at THEN least(used, coalesce(w.weight, 1)) ELSE 0 END AS had
                  FROM ((SELECT t.tenant FROM holdfast.job t
                         WHERE t.tenant IS NOT NULL AND t.locked_by IS NULL AND t.later IS NULL AND t.queue = queue AND t.kind = kind
                AND t.status = waits AND coalesce(CASE WHEN t.status = 'blocked' THEN t.limit_key END, '') = key AND t.priority = level AND t.tenant >= begin_at
                         ORDER BY t.tenant LIMIT 1)
                        UNION ALL
                        (SELECT t.tenant FROM holdfast.job t
                         WHERE t.tenant IS NOT NULL AND t.locked_by IS NULL AND t.later IS NULL AND t.queue = queue AND t.kind = kind
                AND t.status = waits AND coalesce(CASE WHEN t.status = 'blocked' THEN t.limit_key END, '') = key AND t.priority = level
                         ORDER BY t.tenant LIMIT 1) LIMIT 1) AS s LEFT JOIN holdfast.tenant w ON w.name = s.tenant) AS f
            UNION ALL
            -- Once around, and not further than where it began.
            SELECT l.n + 1, s.tenant, l.first, s.past_end, coalesce(w.weight, 1), 0, l.total + coalesce(w.weight, 1)
            FROM walk l, LATERAL (
                    (SELECT t.tenant, l.past_end FROM holdfast.job t
                     WHERE t.tenant IS NOT NULL AND t.locked_by IS NULL AND t.later IS NULL AND t.queue = queue AND t.kind = kind
                AND t.status = waits AND coalesce(CASE WHEN t.status = 'blocked' THEN t.limit_key END, '') = key AND t.priority = level AND t.tenant > l.tenant
                     ORDER BY t.tenant LIMIT 1)
                    UNION ALL
                    (SELECT t.tenant, true FROM holdfast.job t
                     WHERE t.tenant IS NOT NULL AND t.locked_by IS NULL AND t.later IS NULL AND t.queue = queue AND t.kind = kind
                AND t.status = waits AND coalesce(CASE WHEN t.status = 'blocked' THEN t.limit_key END, '') = key AND t.priority = level AND NOT l.past_end
                     ORDER BY t.tenant LIMIT 1) LIMIT 1) AS s LEFT JOIN holdfast.tenant w ON w.name = s.tenant
            WHERE l.total < reached AND NOT (s.past_end AND s.tenant >= l.first)),
        span AS MATERIALIZED (SELECT max(l.total) AS total, times * ceil(most::float8 / greatest(max(l.total), 1))::integer AS rounds FROM walk l),
        due AS MATERIALIZED (
            SELECT l.n, l.tenant, l.weight, d.place, d.id, d.keyed, l.had + d.age - 1 AS turn, d.age = l.weight * s.rounds - l.had AS last
            FROM walk l, span s, LATERAL (
                SELECT o.*, row_number() OVER (ORDER BY o.available_at, o.id) AS age FROM (
                    SELECT t.ctid AS place, t.id, t.order_key IS NOT NULL OR t.limits IS NOT NULL AS keyed, t.available_at FROM holdfast.job t
                    WHERE t.tenant IS NOT NULL AND t.locked_by IS NULL AND t.later IS NULL AND t.queue = queue AND t.kind = kind
                AND t.status = waits AND coalesce(CASE WHEN t.status = 'blocked' THEN t.limit_key END, '') = key AND t.priority = level AND t.tenant = l.tenant
                        AND t.suspect IS NULL AND t.available_at <= now() AND t.shard BETWEEN shard_from AND shard_to AND t.id <> ALL (passed_by)
                    ORDER BY t.available_at, t.id LIMIT l.weight * s.rounds - l.had FOR NO KEY UPDATE SKIP LOCKED) AS o) AS d),
        chosen AS MATERIALIZED (
            SELECT d.*, row_number() OVER (ORDER BY d.turn / d.weight, d.n, d.turn) AS nth FROM due d ORDER BY nth LIMIT most)
        SELECT coalesce(array_agg(c.place ORDER BY c.nth) FILTER (WHERE NOT c.keyed), '{}'),
            coalesce(array_agg(c.id ORDER BY c.nth) FILTER (WHERE c.keyed), '{}'),
            (SELECT CASE WHEN (l.turn + 1) % l.weight = 0 THEN '*' ELSE ((l.turn + 1) % l.weight)::text END || ' ' || l.tenant
             FROM chosen l ORDER BY l.nth DESC LIMIT 1),
            count(*), (SELECT s.total FROM span s), (SELECT bool_or(d.last) FROM due d)
        INTO rows, keyed, at_place, got, total, more FROM chosen c;
        EXIT WHEN got = most OR total IS NULL OR total < reached AND more IS NOT TRUE OR reached > 1000000;
        IF total < reached THEN
            times := times * 4;
        ELSE
            reached := reached * 4;
        END IF;
    END LOOP;
END $$;

-- For candidates of a claim, locked by it: those of a tenant are exchanged for as many of their lanes by turns.
--   rest   those with an order key or limits, and candidates without a tenant
-- Called by claim_jobs.
CREATE FUNCTION holdfast.take_turns(ids bigint[], most integer, shard_from smallint, shard_to smallint, passed_by bigint[],
    OUT heads tid[], OUT rest bigint[])
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp
    SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
    SET plan_cache_mode = force_generic_plan AS $$
DECLARE
    lane record;
    next record;
BEGIN
    heads := '{}';
    rest := ARRAY(SELECT j.id FROM holdfast.job j WHERE j.id = ANY (ids) AND j.tenant IS NULL);
    FOR lane IN
        SELECT j.queue, j.kind, j.priority, CASE WHEN bool_or(j.order_key IS NOT NULL OR j.limits IS NOT NULL) THEN count(*) ELSE least(count(*), most) END AS jobs,
            bool_and(j.limits IS NOT NULL) AS limited
        FROM holdfast.job j WHERE j.id = ANY (ids) AND j.tenant IS NOT NULL GROUP BY j.queue, j.kind, j.priority
    LOOP
        CONTINUE WHEN lane.jobs <= 0;
        SELECT * INTO next FROM holdfast.next_turns('pending', '', lane.queue, lane.kind, lane.priority, lane.jobs::integer, shard_from, shard_to, passed_by);
        heads := heads || next.rows; rest := rest || next.keyed;
        -- Of jobs with limits, those that are taken move the place: see order_by_turns.
        IF next.at_place IS NOT NULL AND NOT lane.limited THEN
            PERFORM set_config(holdfast.turn_setting(lane.queue, lane.kind, lane.priority), next.at_place, false);
        END IF;
    END LOOP;
END $$;

-- The jobs of which a limit has room for some, in the order in which they get it: by turns within each lane, and the lanes in turn too. Jobs
-- without a tenant are ordered by age within theirs.
-- Called by take_limited.
CREATE FUNCTION holdfast.order_by_turns(pool holdfast.limited_job[]) RETURNS holdfast.limited_job[]
    LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp
    SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
    SET plan_cache_mode = force_generic_plan AS $$
BEGIN
    RETURN (
        SELECT array_agg(ROW (r.id, r.place, r.limits, r.limit_key, r.met, r.ordered, r.n, r.setting,
            CASE WHEN r.turn % r.weight = 0 THEN '*' ELSE (r.turn % r.weight)::text END || ' ' || r.tenant)::holdfast.limited_job
            ORDER BY r.priority, r.nth, r.available_at, r.id)
        FROM (SELECT t.*, row_number() OVER (PARTITION BY t.queue, t.kind, t.priority
                  ORDER BY (t.turn - 1) / t.weight, CASE WHEN t.tenant > t.at OR t.tenant = t.at AND t.had IS NOT NULL THEN 0 ELSE 1 END, t.tenant,
                      t.tenant IS NOT NULL OR NOT t.met OR t.limit_key IS NULL, t.available_at, t.id) AS nth
              FROM (SELECT p.*, j.queue, j.kind, j.priority, j.available_at, j.tenant, s.setting, a.at, a.had, coalesce(w.weight, 1) AS weight,
                        CASE WHEN j.tenant IS NULL THEN 1 ELSE row_number() OVER (PARTITION BY j.queue, j.kind, j.priority, j.tenant ORDER BY j.available_at, j.id)
                            + CASE WHEN j.tenant = a.at THEN least(coalesce(a.had, 0), coalesce(w.weight, 1)) ELSE 0 END END AS turn
                    FROM unnest(pool) AS p JOIN holdfast.job j ON j.id = p.id
                        LEFT JOIN LATERAL (SELECT holdfast.turn_setting(j.queue, j.kind, j.priority) AS setting WHERE j.tenant IS NOT NULL) AS s ON true
                        LEFT JOIN LATERAL (SELECT current_setting(s.setting, true) AS now_at) AS c ON true
                        LEFT JOIN LATERAL (SELECT substr(c.now_at, strpos(c.now_at, ' ') + 1) COLLATE "C" AS at,
                            CASE WHEN left(c.now_at, 1) <> '*' THEN nullif(split_part(c.now_at, ' ', 1), '')::integer END AS had) AS a ON true
                        LEFT JOIN holdfast.tenant w ON w.name = j.tenant) AS t) AS r);
END $$;
