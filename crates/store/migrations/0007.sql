-- Where the engine is that holds it; NULL if it is in one place only, or if that was not noted yet.
ALTER TABLE containers ADD COLUMN engine_host TEXT;
ALTER TABLE warm ADD COLUMN engine_host TEXT;
