-- usable from version 1

-- What processes that append and processes that rank tell each other about the backlog: one row. A database with a
-- ledger has it already.
CREATE TABLE IF NOT EXISTS backlog (
  one        smallint PRIMARY KEY CHECK (one = 1),
  ranked     bigint[] NOT NULL,           -- how far nodes have ranked, the furthest of them by partition; {}: none has yet
  held_until timestamptz NOT NULL         -- until then every process that appends refuses writes
) WITH (fillfactor = 20, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0);

INSERT INTO backlog (one, ranked, held_until) VALUES (1, '{}', '-infinity') ON CONFLICT DO NOTHING;
