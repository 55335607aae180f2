-- Lists of friends hold ids in place of numbers: naming somebody in a list makes no player of them. `row_checksum` is that
-- of ledger/sqlite/checksum.py; -1 is no CRC-32, so a list that was damaged before stays so.

CREATE TABLE friend_lists (
  player   TEXT NOT NULL UNIQUE,          -- an id; whoever has a list need not be a player yet
  friends  TEXT NOT NULL,                 -- JSON array of ids, in the order given
  checksum INTEGER NOT NULL               -- CRC-32 of both
) STRICT;

WITH converted (player, friends, is_whole) AS MATERIALIZED (
  SELECT
    owners.id,
    (
      SELECT json_group_array(players.id ORDER BY each.key)
      FROM json_each(iif(json_valid(friends.friends), friends.friends, '[]')) AS each
      JOIN players ON players.number = each.value
    ),
    row_checksum(friends.player, friends.friends) = friends.checksum
  FROM friends
  JOIN players AS owners ON owners.number = friends.player
)
INSERT INTO friend_lists (player, friends, checksum)
SELECT player, friends, iif(is_whole, row_checksum(player, friends), -1) FROM converted;

-- Whom only lists have named is no player; nothing else speaks of the number.
DELETE FROM players
WHERE number IN (
    SELECT player FROM friends
    UNION
    SELECT each.value FROM friends, json_each(iif(json_valid(friends.friends), friends.friends, '[]')) AS each
  )
  AND number NOT IN (SELECT player FROM profiles)
  AND number NOT IN (SELECT player FROM events);

DROP TABLE friends;

-- What all lists and their owners' ids take together, so that it can be bounded without reading them.
ALTER TABLE registry_changes ADD COLUMN friends_bytes INTEGER NOT NULL DEFAULT 0;

UPDATE registry_changes
SET friends_bytes = (SELECT coalesce(sum(octet_length(player) + octet_length(friends)), 0) FROM friend_lists);
