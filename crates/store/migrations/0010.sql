-- The name of the session that a container is, if it is one. Like an alias, a name is free again
-- once its container has ended.
ALTER TABLE containers ADD COLUMN session TEXT;

CREATE UNIQUE INDEX containers_living_session ON containers (principal, session)
    WHERE ended_unix_ms IS NULL AND session IS NOT NULL;
CREATE INDEX containers_ended_session ON containers (principal, session)
    WHERE ended_unix_ms IS NOT NULL AND session IS NOT NULL;
