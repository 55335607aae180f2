-- Where a request came from, when that is kept: an address identifies somebody, so no seal covers it and it can be
-- deleted at any time.

CREATE TABLE origins (
  first    INTEGER PRIMARY KEY,           -- sequence of the request's first event
  upto     INTEGER NOT NULL,              -- and of its last
  address  TEXT NOT NULL,
  checksum INTEGER NOT NULL               -- CRC-32 of all before
) STRICT;
