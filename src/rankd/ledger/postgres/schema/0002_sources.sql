-- usable from version 1

-- How far topics of other systems were consumed: each row changes in the commit of the events that were read from it.
CREATE TABLE sources (
  source    text NOT NULL,                -- a topic, and who consumes it
  partition integer NOT NULL,             -- of the topic
  upto      bigint NOT NULL,              -- the offset to read next
  PRIMARY KEY (source, partition)
);

-- Move sources on, in order of their partitions. RK003 when another consumer has moved one of them: nothing is changed.
-- `after` is the offset that was to be read next, -1 for a source that was never read.
CREATE FUNCTION advance_sources_1(
  s_source text[], s_partition integer[], s_after bigint[], s_upto bigint[],
  OUT advanced integer
) LANGUAGE plpgsql AS $$
DECLARE
  row record;
BEGIN
  advanced := 0;
  FOR row IN
    SELECT * FROM unnest(s_source, s_partition, s_after, s_upto) AS s (source, part, after, upto) ORDER BY source, part
  LOOP
    IF row.after < 0 THEN
      INSERT INTO sources (source, partition, upto) VALUES (row.source, row.part, row.upto) ON CONFLICT DO NOTHING;
    ELSE
      UPDATE sources SET upto = row.upto
      WHERE source = row.source AND sources.partition = row.part AND sources.upto = row.after;
    END IF;
    IF NOT FOUND THEN
      RAISE EXCEPTION 'another consumer has read on' USING ERRCODE = 'RK003', DETAIL = row.source;
    END IF;
    advanced := advanced + 1;
  END LOOP;
END $$;
