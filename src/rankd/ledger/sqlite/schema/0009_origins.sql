-- What requests say of themselves, beside their address. No row is rewritten: those of before have neither, and their
-- checksum is that of the columns before it.
ALTER TABLE origins ADD COLUMN user_agent TEXT;

ALTER TABLE origins ADD COLUMN request_id TEXT;
