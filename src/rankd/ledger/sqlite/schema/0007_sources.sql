-- How far topics of other systems were consumed: each row changes in the commit of the events that were read from it.
CREATE TABLE sources (
  source    TEXT NOT NULL,                -- a topic, and who consumes it
  partition INTEGER NOT NULL,             -- of the topic
  upto      INTEGER NOT NULL,             -- the offset to read next
  checksum  INTEGER NOT NULL,             -- CRC-32 of all before
  PRIMARY KEY (source, partition)
) STRICT, WITHOUT ROWID;
