-- usable from version 1
-- The ledger that many processes append to. Times are ms since 1970. See ledger/port.py for what it promises.
--
-- Locks are taken in one order by everybody: heads in ascending order, then requests in ascending order. So nobody can
-- wait for somebody who waits for him.

-- What was settled when the ledger was made.
CREATE TABLE ledger (
  one        smallint PRIMARY KEY CHECK (one = 1),
  identity   uuid NOT NULL,               -- tells this ledger from any other
  partitions smallint NOT NULL
);

-- The end of each partition. Whoever appends changes its row first and keeps it locked until the commit: so numbers have
-- no gaps and follow the order of commits. Row -1 numbers the events that reach a team board, across partitions.
CREATE TABLE heads (
  partition smallint PRIMARY KEY,
  sequence  bigint NOT NULL,              -- of the last event
  control   bigint NOT NULL,              -- control events so far; the same in every row
  at        bigint NOT NULL               -- the ledger's time at the last commit; never goes back
) WITH (fillfactor = 20, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0);

-- What many events have in common: kind, payload version, board, definition versions, sender, what the clocks read.
CREATE TABLE contexts (
  number  integer PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
  hash    bytea NOT NULL UNIQUE,          -- of the JSON
  kind    text NOT NULL,
  board   text NOT NULL,
  context text NOT NULL                   -- JSON, see ledger/event.py: Context
);

CREATE INDEX contexts_by_board ON contexts (board);

CREATE TABLE events (
  partition smallint NOT NULL,
  sequence  bigint NOT NULL,              -- from 1 in each partition, without gaps, in commit order
  committed bigint NOT NULL,              -- the ledger's time at its commit; within a partition never less than before
  context   integer NOT NULL,             -- contexts.number
  at        bigint NOT NULL,
  player    text COLLATE "C" NOT NULL,    -- '' for an event about no player
  score     bigint NOT NULL,              -- as it was sent; 0 where the kind has none
  tiebreak  bigint NOT NULL,
  ordinal   bigint,                       -- from 1 across partitions, of events that reach a team board
  detail    text,                         -- JSON, see ledger/event.py: Detail; null when there is nothing to say
  PRIMARY KEY (partition, sequence, committed)
) PARTITION BY RANGE (committed);

CREATE INDEX events_by_player ON events (player, sequence);

-- Events about no player, once each; in `events` they stand in every partition.
CREATE TABLE controls (
  number    bigint PRIMARY KEY,           -- from 1, without gaps
  context   integer NOT NULL,
  at        bigint NOT NULL,
  detail    text,
  sequences bigint[] NOT NULL             -- in each partition
);

-- Metadata may identify somebody: it is kept apart from events, so that it can be deleted.
CREATE TABLE metadata (
  partition smallint NOT NULL,
  sequence  bigint NOT NULL,
  json      text NOT NULL,
  PRIMARY KEY (partition, sequence)
);

-- Where a request came from, when that is kept; an address identifies somebody and can be deleted at any time.
CREATE TABLE origins (
  partition smallint NOT NULL,
  first     bigint NOT NULL,              -- sequence of the request's first event in the partition
  upto      bigint NOT NULL,              -- and of its last
  address   text NOT NULL,
  PRIMARY KEY (partition, first)
);

-- Requests that came with a key, for as long as a repeat is recognised. By hash of the key and never by time: a key is
-- unique whenever its request comes again.
CREATE TABLE requests (
  sender      text COLLATE "C" NOT NULL,
  key         text COLLATE "C" NOT NULL,
  fingerprint bytea NOT NULL,             -- of the decoded request
  at          bigint NOT NULL,            -- when it came, by the ledger's time
  events      integer NOT NULL,
  partitions  smallint[] NOT NULL,        -- in which it has events,
  sequences   bigint[] NOT NULL,          -- and the last of them in each
  PRIMARY KEY (sender, key)
) PARTITION BY HASH (sender, key);

CREATE INDEX requests_by_time ON requests (at);

DO $$
BEGIN
  FOR remainder IN 0 .. 7 LOOP
    EXECUTE format(
      'CREATE TABLE requests_%s PARTITION OF requests FOR VALUES WITH (MODULUS 8, REMAINDER %s)', remainder, remainder
    );
  END LOOP;
END $$;

-- Make the tables of some months from that of an instant on; those that are there are left alone. By the rights of who
-- made the schema, so that a server needs no right to make tables. Nobody who appends or reads waits for it.
CREATE FUNCTION make_months(since bigint, months integer) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = rankd, pg_temp AS $$
DECLARE
  month timestamp := date_trunc('month', to_timestamp(since / 1000.0) AT TIME ZONE 'UTC');
  name  text;
  made  integer := 0;
BEGIN
  FOR step IN 0 .. months - 1 LOOP
    name := 'events_' || to_char(month, 'YYYY_MM');
    IF to_regclass(name) IS NULL THEN
      PERFORM pg_advisory_xact_lock(hashtextextended('rankd.make_months', 0));
      -- Asked of the table: what to_regclass remembers may be from before we waited.
      IF NOT EXISTS (SELECT FROM pg_class WHERE relname = name AND relnamespace = 'rankd'::regnamespace) THEN
        EXECUTE format('CREATE TABLE %I (LIKE events INCLUDING ALL)', name);
        EXECUTE format(
          'ALTER TABLE events ATTACH PARTITION %I FOR VALUES FROM (%s) TO (%s)', name,
          (extract(epoch FROM month AT TIME ZONE 'UTC') * 1000)::bigint,
          (extract(epoch FROM (month + interval '1 month') AT TIME ZONE 'UTC') * 1000)::bigint
        );
        made := made + 1;
      END IF;
    END IF;
    month := month + interval '1 month';
  END LOOP;
  RETURN made;
END $$;

-- Remember requests in the order given, which is that of their keys. When one of the keys was used by a request that came
-- at `forgotten_before` or later, nothing is written: RK002, with the keys as JSON. `of`, `parts` and `lasts` say, for each
-- partition a request has events in, which request it is (from 1) and the last sequence.
CREATE FUNCTION remember_requests(
  senders text[], keys text[], fingerprints bytea[], events integer[], came bigint, forgotten_before bigint,
  of integer[], parts smallint[], lasts bigint[]
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  taken json;
BEGIN
  WITH places AS (
    SELECT place.request, array_agg(place.partition) AS partitions, array_agg(place.sequence) AS sequences
    FROM unnest(of, parts, lasts) AS place (request, partition, sequence)
    GROUP BY place.request
  ), written AS (
    INSERT INTO requests AS old (sender, key, fingerprint, at, events, partitions, sequences)
    SELECT
      new.sender, new.key, new.fingerprint, came, new.events,
      coalesce(places.partitions, '{}'), coalesce(places.sequences, '{}')
    FROM unnest(senders, keys, fingerprints, remember_requests.events)
      WITH ORDINALITY AS new (sender, key, fingerprint, events, number)
    LEFT JOIN places ON places.request = new.number
    ORDER BY new.number
    ON CONFLICT (sender, key) DO UPDATE SET
      fingerprint = excluded.fingerprint, at = excluded.at, events = excluded.events,
      partitions = excluded.partitions, sequences = excluded.sequences
    WHERE old.at < forgotten_before
    RETURNING sender, key
  )
  SELECT json_agg(json_build_array(asked.sender, asked.key)) INTO taken
  FROM unnest(senders, keys) AS asked (sender, key)
  WHERE NOT EXISTS (SELECT FROM written WHERE written.sender = asked.sender AND written.key = asked.key);
  IF taken IS NOT NULL THEN
    RAISE EXCEPTION 'keys are taken' USING ERRCODE = 'RK002', DETAIL = taken::text;
  END IF;
END $$;

-- Append the events of one commit, sorted by partition. `parts` are the partitions they stand in, ascending, with -1 first
-- where some have ordinals; `counts` how many. RK001 when a head knows other control events than were `seen`. Ordinals,
-- and places of requests, metadata and origins, are given counted from the commit's first event in their partition.
CREATE FUNCTION append_1(
  seen bigint, now bigint, parts smallint[], counts bigint[],
  e_partition smallint[], e_context integer[], e_at bigint[], e_player text[], e_score bigint[], e_tiebreak bigint[],
  e_ordinal bigint[], e_detail text[],
  r_sender text[], r_key text[], r_fingerprint bytea[], r_events integer[], forgotten_before bigint,
  q_request integer[], q_partition smallint[], q_last bigint[],
  m_partition smallint[], m_place bigint[], m_json text[],
  o_partition smallint[], o_first bigint[], o_upto bigint[], o_address text[],
  OUT bases bigint[],                     -- the sequence before the first event, by partition + 2
  OUT committed bigint
) LANGUAGE plpgsql AS $$
DECLARE
  shifts bigint[];                        -- what makes a sequence of the row's number, by partition + 2
  rows   bigint := 0;
  head   record;
  slot   integer;
BEGIN
  bases := array_fill(0::bigint, ARRAY[parts[cardinality(parts)] + 2]);
  shifts := bases;
  committed := now;
  FOR part IN 1 .. cardinality(parts) LOOP
    UPDATE heads SET sequence = sequence + counts[part], at = greatest(at, now)
    WHERE partition = parts[part]
    RETURNING sequence, control, at INTO head;
    IF head.control <> seen THEN
      RAISE EXCEPTION 'there are other control events' USING ERRCODE = 'RK001';
    END IF;
    slot := parts[part] + 2;
    bases[slot] := head.sequence - counts[part];
    committed := greatest(committed, head.at);
    IF slot > 1 THEN
      shifts[slot] := bases[slot] - rows;
      rows := rows + counts[part];
    END IF;
  END LOOP;
  -- A head that was behind: its next commit must not be before this one.
  IF committed > now THEN
    UPDATE heads SET at = append_1.committed WHERE partition = ANY (parts) AND at < append_1.committed;
  END IF;

  IF rows > 0 THEN
    INSERT INTO events (partition, sequence, committed, context, at, player, score, tiebreak, ordinal, detail)
    SELECT
      e.partition, shifts[e.partition + 2] + e.number, append_1.committed, e.context, e.at, e.player, e.score,
      e.tiebreak, bases[1] + e.ordinal, e.detail
    FROM unnest(e_partition, e_context, e_at, e_player, e_score, e_tiebreak, e_ordinal, e_detail)
      WITH ORDINALITY AS e (partition, context, at, player, score, tiebreak, ordinal, detail, number);
  END IF;
  IF m_json IS NOT NULL THEN
    INSERT INTO metadata (partition, sequence, json)
    SELECT m.partition, bases[m.partition + 2] + m.place, m.json
    FROM unnest(m_partition, m_place, m_json) AS m (partition, place, json);
  END IF;
  IF o_address IS NOT NULL THEN
    INSERT INTO origins (partition, first, upto, address)
    SELECT o.partition, bases[o.partition + 2] + o.first, bases[o.partition + 2] + o.upto, o.address
    FROM unnest(o_partition, o_first, o_upto, o_address) AS o (partition, first, upto, address);
  END IF;
  IF r_key IS NOT NULL THEN
    PERFORM remember_requests(
      r_sender, r_key, r_fingerprint, r_events, committed, forgotten_before, q_request, q_partition,
      ARRAY(
        SELECT bases[q.partition + 2] + q.last
        FROM unnest(q_partition, q_last) WITH ORDINALITY AS q (partition, last, number) ORDER BY q.number
      )
    );
  END IF;
END $$;

-- Append events about no player, to every partition. All heads are locked, so whatever was appended before has smaller
-- numbers everywhere. RK001 when there are other control events than were `seen`. One row is returned, also for none.
CREATE FUNCTION append_control_1(
  seen bigint, now bigint, c_context integer[], c_at bigint[], c_detail text[],
  r_sender text[], r_key text[], r_fingerprint bytea[], forgotten_before bigint,
  OUT ends bigint[],                      -- the last sequence in each partition
  OUT numbered bigint,                    -- control events by now
  OUT committed bigint
) LANGUAGE plpgsql AS $$
DECLARE
  new integer := cardinality(c_context);
BEGIN
  PERFORM FROM heads ORDER BY partition FOR UPDATE;
  SELECT max(control) + new, greatest(now, max(at)) INTO numbered, committed FROM heads;
  IF numbered - new <> seen THEN
    RAISE EXCEPTION 'there are other control events' USING ERRCODE = 'RK001';
  END IF;
  UPDATE heads SET
    sequence = CASE WHEN partition < 0 THEN sequence ELSE sequence + new END,
    control = numbered, at = append_control_1.committed;
  ends := ARRAY(SELECT sequence FROM heads WHERE partition >= 0 ORDER BY partition);
  INSERT INTO controls (number, context, at, detail, sequences)
  SELECT
    numbered - new + c.number, c.context, c.at, c.detail,
    ARRAY(SELECT last - new + c.number FROM unnest(ends) WITH ORDINALITY AS e (last, part) ORDER BY e.part)
  FROM unnest(c_context, c_at, c_detail) WITH ORDINALITY AS c (context, at, detail, number);
  INSERT INTO events (partition, sequence, committed, context, at, player, score, tiebreak, detail)
  SELECT e.part - 1, e.last - new + c.number, append_control_1.committed, c.context, c.at, '', 0, 0, c.detail
  FROM unnest(ends) WITH ORDINALITY AS e (last, part)
  CROSS JOIN unnest(c_context, c_at, c_detail) WITH ORDINALITY AS c (context, at, detail, number)
  ORDER BY e.part, c.number;
  IF r_key IS NOT NULL THEN
    PERFORM remember_requests(
      r_sender, r_key, r_fingerprint, ARRAY[new], committed, forgotten_before,
      array_fill(1, ARRAY[CASE WHEN new > 0 THEN cardinality(ends) ELSE 0 END]),
      ARRAY(SELECT (part - 1)::smallint FROM generate_series(1, CASE WHEN new > 0 THEN cardinality(ends) ELSE 0 END) AS part),
      CASE WHEN new > 0 THEN ends ELSE '{}' END
    );
  END IF;
END $$;

-- For people: each event with its context in place of a number.
CREATE VIEW readable_events AS
SELECT
  events.partition, events.sequence, contexts.kind, contexts.board,
  to_timestamp(events.at / 1000.0) AS at, events.player, events.score, events.tiebreak, events.ordinal,
  events.detail::json AS detail, metadata.json::json AS metadata,
  contexts.context::json ->> 'sender' AS sender, contexts.context::json -> 'boards' AS accepted_under
FROM events
JOIN contexts ON contexts.number = events.context
LEFT JOIN metadata ON metadata.partition = events.partition AND metadata.sequence = events.sequence;
