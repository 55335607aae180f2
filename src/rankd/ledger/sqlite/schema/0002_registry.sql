-- The registry, beside the ledger in the same file: what is known of players and is not a log.

CREATE TABLE profiles (
  player     INTEGER PRIMARY KEY,         -- players.number
  name       TEXT,
  name_key   TEXT,                        -- the name in lower case, for searches
  avatar_url TEXT,
  country    TEXT,
  attributes TEXT,                        -- JSON object; null when there are none
  checksum   INTEGER NOT NULL             -- CRC-32 of all others, and of the player's number
) STRICT;

CREATE INDEX profiles_by_name ON profiles (name_key) WHERE name_key IS NOT NULL;

CREATE TABLE friends (
  player   INTEGER PRIMARY KEY,           -- players.number
  friends  TEXT NOT NULL,                 -- JSON array of players.number, in the order given
  checksum INTEGER NOT NULL               -- CRC-32 of both
) STRICT;

-- How often the registry was changed: the witness knows it too.
CREATE TABLE registry_changes (
  one   INTEGER PRIMARY KEY CHECK (one = 1),
  count INTEGER NOT NULL
) STRICT;

INSERT INTO registry_changes (one, count) VALUES (1, 0);
