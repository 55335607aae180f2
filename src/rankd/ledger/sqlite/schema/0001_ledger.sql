-- The embedded ledger, version 1. Times are ms since 1970. docs/ledger.md explains each table for people who query it.

-- Who a player is stands here and nowhere else: events name players by number. Erasing somebody overwrites `id`.
CREATE TABLE players (
  number INTEGER PRIMARY KEY,             -- from 1, never used again
  id     TEXT NOT NULL UNIQUE
) STRICT;

-- What many events have in common: kind, payload version, board, definition versions, sender, what the clocks read.
CREATE TABLE contexts (
  number  INTEGER PRIMARY KEY,            -- from 1
  context TEXT NOT NULL                   -- JSON, see ledger/event.py: Context
) STRICT;

CREATE TABLE events (
  sequence INTEGER PRIMARY KEY,           -- from 1, without gaps, in commit order
  context  INTEGER NOT NULL,              -- contexts.number
  at       INTEGER NOT NULL,
  player   INTEGER NOT NULL,              -- players.number, 0 for an event about no player
  score    INTEGER NOT NULL,              -- as it was sent; 0 where the kind has none
  tiebreak INTEGER NOT NULL,
  detail   TEXT,                          -- JSON, see ledger/event.py: Detail; null when there is nothing to say
  seal     BLOB                           -- on the last event of a commit: hash of the seal before and of its events, and its time
) STRICT;

-- Metadata may identify somebody: it is kept apart from what the seals cover, with a checksum of its own.
CREATE TABLE metadata (
  sequence INTEGER PRIMARY KEY,           -- events.sequence
  json     TEXT NOT NULL,
  checksum INTEGER NOT NULL               -- CRC-32 of the UTF-8
) STRICT;

-- Requests that came with a key, for as long as a repeat is recognised.
CREATE TABLE requests (
  sender      TEXT NOT NULL,
  key         TEXT NOT NULL,
  fingerprint BLOB NOT NULL,              -- of the decoded request
  first       INTEGER NOT NULL,           -- sequence of its first event; of the last one before it when it had none
  upto        INTEGER NOT NULL,           -- and of its last
  at          INTEGER NOT NULL,           -- when it came, by the ledger's time
  checksum    INTEGER NOT NULL,           -- CRC-32 of all before
  answer      BLOB,                       -- MessagePack and its CRC-32; null until it was known and written
  PRIMARY KEY (sender, key)
) STRICT, WITHOUT ROWID;

CREATE INDEX requests_by_time ON requests (at);

-- For people: each event with its ids in place of numbers.
CREATE VIEW readable_events AS
SELECT
  events.sequence,
  json_extract(contexts.context, '$.kind') AS kind,
  json_extract(contexts.context, '$.board') AS board,
  strftime('%Y-%m-%dT%H:%M:%fZ', events.at / 1000.0, 'unixepoch') AS at,
  players.id AS player,
  events.score,
  events.tiebreak,
  events.detail,
  metadata.json AS metadata,
  json_extract(contexts.context, '$.sender') AS sender,
  json_extract(contexts.context, '$.boards') AS accepted_under
FROM events
JOIN contexts ON contexts.number = events.context
LEFT JOIN players ON players.number = events.player
LEFT JOIN metadata ON metadata.sequence = events.sequence;

-- For people: every definition a board ever had.
CREATE VIEW definitions AS
SELECT
  json_extract(contexts.context, '$.board') AS board,
  each.value ->> '$.version' AS version,
  events.sequence,
  events.detail -> '$.definition' AS definition
FROM events
JOIN contexts ON contexts.number = events.context
JOIN json_each(contexts.context, '$.boards') AS each
WHERE json_extract(contexts.context, '$.kind') = 'define';
