-- What a warm container was made to be is of no use to another server, which removes it.
ALTER TABLE warm DROP COLUMN spec;
