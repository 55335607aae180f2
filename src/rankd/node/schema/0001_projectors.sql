-- Who ranks. The epoch is counted up by each projector that takes over: Redis refuses whoever has a lower one.
CREATE TABLE projectors (
  name   text PRIMARY KEY,
  epoch  bigint NOT NULL,
  holder text NOT NULL,                   -- for people: host and process
  since  timestamptz NOT NULL
);
INSERT INTO projectors (name, epoch, holder, since) VALUES ('ranks', 0, 'nobody yet', now());
