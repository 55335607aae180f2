-- Drops the backlog of a ledger elsewhere, before a ledger is made in this database: that one makes a table of its own.
DO $$ BEGIN
  IF to_regclass('rankd.versions') IS NOT NULL THEN
    IF NOT EXISTS (SELECT FROM rankd.versions WHERE component = 'ledger') THEN
      DROP TABLE IF EXISTS rankd.backlog;
    END IF;
  END IF;
END $$
