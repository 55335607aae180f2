-- For copies of this ledger in an archive: whose it is, and what of the registry has changed since the last copy.

-- Stays the same in every copy of the folder.
CREATE TABLE ledger_identity (
  one      INTEGER PRIMARY KEY CHECK (one = 1),
  identity TEXT NOT NULL                  -- 16 hexadecimal digits, at random
) STRICT;

INSERT INTO ledger_identity (one, identity) VALUES (1, lower(hex(randomblob(8))));

-- The last change of each profile and list of friends, also of those that are gone.
CREATE TABLE registry_log (
  change INTEGER PRIMARY KEY AUTOINCREMENT, -- from 1, never used again: a later change has a higher number
  kind   TEXT NOT NULL,                   -- profile or friends
  player ANY NOT NULL,                    -- profiles.player, or friend_lists.player
  UNIQUE (kind, player)
) STRICT;

INSERT INTO registry_log (kind, player) SELECT 'profile', player FROM profiles ORDER BY player;
INSERT INTO registry_log (kind, player) SELECT 'friends', player FROM friend_lists ORDER BY rowid;

CREATE TRIGGER profile_stored AFTER INSERT ON profiles BEGIN
  DELETE FROM registry_log WHERE kind = 'profile' AND player = new.player;
  INSERT INTO registry_log (kind, player) VALUES ('profile', new.player);
END;

CREATE TRIGGER profile_changed AFTER UPDATE ON profiles BEGIN
  DELETE FROM registry_log WHERE kind = 'profile' AND player IN (old.player, new.player);
  INSERT INTO registry_log (kind, player) VALUES ('profile', new.player);
END;

CREATE TRIGGER profile_deleted AFTER DELETE ON profiles BEGIN
  DELETE FROM registry_log WHERE kind = 'profile' AND player = old.player;
  INSERT INTO registry_log (kind, player) VALUES ('profile', old.player);
END;

CREATE TRIGGER friends_stored AFTER INSERT ON friend_lists BEGIN
  DELETE FROM registry_log WHERE kind = 'friends' AND player = new.player;
  INSERT INTO registry_log (kind, player) VALUES ('friends', new.player);
END;

CREATE TRIGGER friends_changed AFTER UPDATE ON friend_lists BEGIN
  DELETE FROM registry_log WHERE kind = 'friends' AND player IN (old.player, new.player);
  INSERT INTO registry_log (kind, player) VALUES ('friends', new.player);
END;

CREATE TRIGGER friends_deleted AFTER DELETE ON friend_lists BEGIN
  DELETE FROM registry_log WHERE kind = 'friends' AND player = old.player;
  INSERT INTO registry_log (kind, player) VALUES ('friends', old.player);
END;
