-- Credentials, in a file of their own: the ledger's belongs to the process that serves it, and keys are made meanwhile.

-- API keys. A row stays when its key is revoked: the ledger speaks of senders by name, and an id is never used again.
CREATE TABLE credentials (
  id         TEXT PRIMARY KEY,            -- 16 hexadecimal digits, the part of the token that is no secret
  name       TEXT NOT NULL,               -- the sender in the ledger
  digest     BLOB NOT NULL UNIQUE,        -- SHA-256 of the whole token, 32 bytes
  scopes     TEXT NOT NULL,               -- in alphabetical order, a space between two
  player     TEXT,                        -- whom it acts for; null for a service
  created_at INTEGER NOT NULL,            -- ms since 1970, as all times
  expires_at INTEGER,                     -- null: never
  revoked_at INTEGER,                     -- null while it lives
  checksum   INTEGER NOT NULL             -- CRC-32 of all others, in this order
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX credentials_by_name ON credentials (name) WHERE revoked_at IS NULL;

-- Keys that submissions are signed with. A row leaves when its key is revoked, and its bytes are overwritten.
CREATE TABLE signing_keys (
  name       TEXT PRIMARY KEY,            -- as in a board's `signing`
  secret     BLOB NOT NULL,               -- what the HMAC is keyed with
  created_at INTEGER NOT NULL,
  checksum   INTEGER NOT NULL             -- CRC-32 of all others, in this order
) STRICT, WITHOUT ROWID;
