-- The engine that holds it; empty if that was not noted yet.
ALTER TABLE warm ADD COLUMN engine TEXT NOT NULL DEFAULT '';
