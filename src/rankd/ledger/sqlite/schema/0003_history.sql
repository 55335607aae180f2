-- A player's own events, found without reading the whole ledger. Events are indexed some time after they were written, a
-- chunk of them at a time and sorted by player: so the index grows at its end, as the ledger does.

CREATE TABLE player_events (
  chunk     INTEGER NOT NULL,             -- sequence / 65536
  player    INTEGER NOT NULL,             -- players.number; 0 marks a chunk that is complete
  sequences BLOB NOT NULL,                -- of the player's events in the chunk: big-endian 16-bit offsets
  PRIMARY KEY (chunk, player)
) STRICT, WITHOUT ROWID;
