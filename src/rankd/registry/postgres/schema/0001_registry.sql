-- The registry and the credentials on PostgreSQL: what is known of players and keys, shared by every API process.
-- Ids and what is searched compare as bytes (COLLATE "C"), whatever the database's own collation is.

-- Everybody who can be found by id: players with a profile or friends, those named as friends, those who scored.
CREATE TABLE registry_players (
  id text COLLATE "C" PRIMARY KEY
);

CREATE TABLE registry_profiles (
  player     text COLLATE "C" PRIMARY KEY,
  name       text COLLATE "C",
  name_key   text COLLATE "C",            -- the name in lower case, for searches
  avatar_url text,
  country    text,
  attributes text                         -- JSON object; null when there are none
);

CREATE INDEX registry_profiles_by_name ON registry_profiles (name_key, player) WHERE name_key IS NOT NULL;

CREATE TABLE registry_friends (
  player  text COLLATE "C" PRIMARY KEY,
  friends text[] NOT NULL               -- in the order given
);

-- Whose profile or friends were changed lately: processes look here for what their memory must forget. A number from a
-- sequence would not do: transactions commit in another order than they take numbers. Transaction ids are compared with
-- the snapshot of a process' last look, so that writers need not wait for each other.
CREATE TABLE registry_changes (
  writer     xid8 NOT NULL DEFAULT pg_current_xact_id(),
  player     text COLLATE "C" NOT NULL,
  changed_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE INDEX registry_changes_by_writer ON registry_changes (writer);

-- API keys. A row stays when its key is revoked: the ledger speaks of senders by name, and an id is never used again.
CREATE TABLE credentials (
  id         text COLLATE "C" PRIMARY KEY, -- 16 hexadecimal digits, the part of the token that is no secret
  name       text COLLATE "C" NOT NULL,    -- the sender in the ledger
  digest     bytea NOT NULL UNIQUE,        -- SHA-256 of the whole token, 32 bytes
  scopes     text NOT NULL,                -- in alphabetical order, a space between two
  player     text COLLATE "C",             -- whom it acts for; null for a service
  created_at bigint NOT NULL,              -- ms since 1970, as all times
  expires_at bigint,                       -- null: never
  revoked_at bigint                        -- null while it lives
);

CREATE UNIQUE INDEX credentials_by_name ON credentials (name) WHERE revoked_at IS NULL;

-- Keys that submissions are signed with. A row leaves when its key is revoked; its bytes stay in the table's file until
-- vacuum gives their place to others, and in the write-ahead log and backups as long as those are kept.
CREATE TABLE signing_keys (
  name       text COLLATE "C" PRIMARY KEY, -- as in a board's `signing`
  secret     bytea NOT NULL,               -- what the HMAC is keyed with
  created_at bigint NOT NULL
);

-- One row that every change of a key locks and replaces: another value than the one remembered says that something
-- changed. Not a count: after a failover that lost commits, the same count could stand for other keys.
CREATE TABLE credentials_version (
  one     boolean PRIMARY KEY DEFAULT true CHECK (one),
  version uuid NOT NULL DEFAULT gen_random_uuid()
);

INSERT INTO credentials_version DEFAULT VALUES;
