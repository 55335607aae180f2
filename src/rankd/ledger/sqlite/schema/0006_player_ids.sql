-- Players are no longer kept sorted by id with each commit, which wrote a page for each new player. The index of ids is
-- written behind them, a chunk of players at a time and sorted within it. SQLite cannot drop a UNIQUE: the table is copied.

DROP VIEW readable_events;

ALTER TABLE players RENAME TO sorted_players;

-- Erasing somebody overwrites `id` here, and deletes their rows in the two tables below.
CREATE TABLE players (
  number INTEGER PRIMARY KEY,             -- from 1, never used again
  id     TEXT NOT NULL                    -- of one player only: whoever numbers players knows them all
) STRICT;

INSERT INTO players (number, id) SELECT number, id FROM sorted_players ORDER BY number;

DROP TABLE sorted_players;

CREATE TABLE player_ids (
  upto   INTEGER NOT NULL,                -- the last number of the chunk
  id     TEXT NOT NULL,
  number INTEGER NOT NULL,                -- players.number
  PRIMARY KEY (upto, id)
) STRICT, WITHOUT ROWID;

-- Profiles are read by id all the time, and stored one by one.
CREATE TABLE profile_ids (
  id     TEXT PRIMARY KEY,
  number INTEGER NOT NULL                 -- profiles.player
) STRICT, WITHOUT ROWID;

INSERT INTO profile_ids (id, number)
SELECT players.id, players.number FROM profiles JOIN players ON players.number = profiles.player ORDER BY players.id;

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
