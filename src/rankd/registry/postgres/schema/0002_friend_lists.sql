-- usable from version 1
-- Naming somebody in a list of friends makes no player of them: ids that only lists have named can be found no longer.
-- Whether somebody scored is known where the ledger is in the same database; elsewhere everybody stays.

DO $$
BEGIN
  IF to_regclass('events') IS NOT NULL THEN
    EXECUTE '
      DELETE FROM registry_players
      WHERE id IN (SELECT player FROM registry_friends UNION SELECT unnest(friends) FROM registry_friends)
        AND NOT EXISTS (SELECT FROM registry_profiles WHERE registry_profiles.player = registry_players.id)
        AND NOT EXISTS (SELECT FROM events WHERE events.player = registry_players.id)
    ';
  END IF;
END $$;
