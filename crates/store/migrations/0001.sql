CREATE TABLE containers (
    id TEXT PRIMARY KEY,
    principal TEXT NOT NULL,
    alias TEXT,
    spec TEXT NOT NULL,
    image_digest TEXT,
    engine TEXT NOT NULL,
    labels TEXT NOT NULL,
    is_persistent INTEGER NOT NULL,
    key TEXT,
    phase TEXT NOT NULL,
    created_unix_ms INTEGER NOT NULL,
    last_used_unix_ms INTEGER NOT NULL,
    expires_unix_ms INTEGER,
    ended_unix_ms INTEGER
) STRICT;

-- An alias is free again once its container has ended.
CREATE UNIQUE INDEX containers_living_alias ON containers (principal, alias)
    WHERE ended_unix_ms IS NULL AND alias IS NOT NULL;
CREATE INDEX containers_key ON containers (principal, key, created_unix_ms)
    WHERE key IS NOT NULL;
CREATE INDEX containers_living ON containers (created_unix_ms, id)
    WHERE ended_unix_ms IS NULL;
CREATE INDEX containers_ended ON containers (principal, created_unix_ms, id)
    WHERE ended_unix_ms IS NOT NULL;
CREATE INDEX containers_old ON containers (ended_unix_ms)
    WHERE ended_unix_ms IS NOT NULL;

CREATE TABLE attachments (
    container TEXT NOT NULL REFERENCES containers (id) ON DELETE CASCADE,
    client_name TEXT NOT NULL,
    session_id TEXT NOT NULL,
    attached_unix_ms INTEGER NOT NULL,
    PRIMARY KEY (container, client_name, session_id)
) STRICT, WITHOUT ROWID;

-- An exec may be remembered longer than its container, so nothing refers to that.
-- `secrets` holds environment and input, and is NULL once the exec has ended.
CREATE TABLE execs (
    id TEXT PRIMARY KEY,
    container TEXT NOT NULL,
    principal TEXT NOT NULL,
    key TEXT,
    command TEXT NOT NULL,
    secrets TEXT,
    created_unix_ms INTEGER NOT NULL,
    ended_unix_ms INTEGER,
    ending TEXT
) STRICT;

CREATE INDEX execs_key ON execs (container, key, created_unix_ms)
    WHERE key IS NOT NULL;
CREATE INDEX execs_living ON execs (created_unix_ms, id)
    WHERE ended_unix_ms IS NULL;
CREATE INDEX execs_ended ON execs (principal, created_unix_ms, id)
    WHERE ended_unix_ms IS NOT NULL;
CREATE INDEX execs_ended_in ON execs (container, created_unix_ms, id)
    WHERE ended_unix_ms IS NOT NULL;
CREATE INDEX execs_old ON execs (ended_unix_ms)
    WHERE ended_unix_ms IS NOT NULL;
