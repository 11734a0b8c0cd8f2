-- The variables of a container may be secret: they are kept apart, and are NULL once it has
-- ended.
ALTER TABLE containers ADD COLUMN env TEXT;
UPDATE containers SET env = json_extract(spec, '$.env')
    WHERE ended_unix_ms IS NULL AND json_valid(spec);
UPDATE containers SET spec = json_remove(spec, '$.env') WHERE json_valid(spec);
