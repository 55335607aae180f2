-- Standings: what is kept in each board's first window, for reads while the rank store is away; written by the projector.

-- Emptying an instance gives it another number, which costs the same for one player and for ten million.
CREATE SEQUENCE standings_numbers AS integer;

CREATE TABLE standings_instances (
  instance text COLLATE "C" PRIMARY KEY,   -- board@window@scope
  number   integer NOT NULL UNIQUE DEFAULT nextval('standings_numbers'),
  ordering text NOT NULL,                  -- the board's order and ties, by which keys are read back as scores
  ties     text NOT NULL,
  total    bigint NOT NULL DEFAULT 0       -- how many players stand there
);

-- In standing order the smaller keys come first, as in the engine: better score, then the tie field, then the id's bytes.
CREATE TABLE standings (
  instance  integer NOT NULL,              -- standings_instances.number
  player    text COLLATE "C" NOT NULL,
  score_key bigint NOT NULL,
  tie_key   bigint NOT NULL,
  PRIMARY KEY (instance, player)
) WITH (fillfactor = 85);                  -- a row's next version finds room on its page, so that fewer are written

CREATE INDEX standings_in_order ON standings (instance, score_key, tie_key, player);

-- Numbers that no instance has any more: their rows are deleted bit by bit.
CREATE TABLE standings_left (
  number integer PRIMARY KEY
);

-- How far the standings are, changed in the same transaction as they are. No row: nothing was written yet.
CREATE TABLE standings_positions (
  partition integer PRIMARY KEY,
  epoch     bigint NOT NULL,               -- of the projector that wrote last
  sequence  bigint NOT NULL,               -- the last event of the partition that is counted
  at        bigint NOT NULL                -- the ledger's time then, ms since 1970
);
