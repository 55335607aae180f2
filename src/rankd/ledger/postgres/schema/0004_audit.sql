-- usable from version 1

-- What requests say of themselves, beside their address; null for those of before.
ALTER TABLE origins ADD COLUMN user_agent text, ADD COLUMN request_id text;

-- Control events are few, and a board's are asked for to work out what a player's score was.
CREATE INDEX controls_by_context ON controls (context);

-- Add where the events of an append came from. Places are counted from the commit's first event in their partition, from 1;
-- `bases` are the sequences before those, by partition + 2.
CREATE FUNCTION add_origins_1(
  bases bigint[], o_partition smallint[], o_first bigint[], o_upto bigint[], o_address text[], o_user_agent text[],
  o_request_id text[],
  OUT added integer
) LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO origins (partition, first, upto, address, user_agent, request_id)
  SELECT
    o.partition, bases[o.partition + 2] + o.first, bases[o.partition + 2] + o.upto, o.address, o.user_agent, o.request_id
  FROM unnest(o_partition, o_first, o_upto, o_address, o_user_agent, o_request_id)
    AS o (partition, first, upto, address, user_agent, request_id);
  GET DIAGNOSTICS added = ROW_COUNT;
END $$;
