-- The schema after migration 9, as SQLite remembers it: a new database begins here instead of
-- running the migrations before. A test compares the two.
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
, is_warm INTEGER NOT NULL DEFAULT 0, env TEXT, engine_host TEXT) STRICT;

CREATE TABLE attachments (
    container TEXT NOT NULL REFERENCES containers (id) ON DELETE CASCADE,
    client_name TEXT NOT NULL,
    session_id TEXT NOT NULL,
    attached_unix_ms INTEGER NOT NULL,
    PRIMARY KEY (container, client_name, session_id)
) STRICT, WITHOUT ROWID;

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
, oom_kills_before INTEGER NOT NULL DEFAULT 0, log_bytes INTEGER NOT NULL DEFAULT 0) STRICT;

CREATE TABLE warm (
    id TEXT PRIMARY KEY,
    created_unix_ms INTEGER NOT NULL
, engine TEXT NOT NULL DEFAULT '', engine_host TEXT) STRICT, WITHOUT ROWID;

CREATE TABLE ended (
    principal TEXT PRIMARY KEY,
    execs INTEGER NOT NULL,
    log_bytes INTEGER NOT NULL,
    containers INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE ledger_anchor (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    seq INTEGER NOT NULL,
    hash TEXT NOT NULL,
    first_kept INTEGER NOT NULL
) STRICT;

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

CREATE INDEX execs_oldest ON execs (principal, ended_unix_ms, id)
    WHERE ended_unix_ms IS NOT NULL;

CREATE INDEX containers_oldest ON containers (principal, ended_unix_ms, id)
    WHERE ended_unix_ms IS NOT NULL;

CREATE TRIGGER execs_inserted AFTER INSERT ON execs WHEN NEW.ended_unix_ms IS NOT NULL BEGIN
    INSERT INTO ended VALUES (NEW.principal, 1, NEW.log_bytes, 0)
        ON CONFLICT (principal) DO UPDATE SET
            execs = execs + 1, log_bytes = log_bytes + NEW.log_bytes;
END;

CREATE TRIGGER execs_ended AFTER UPDATE OF ended_unix_ms ON execs
    WHEN OLD.ended_unix_ms IS NULL AND NEW.ended_unix_ms IS NOT NULL BEGIN
    INSERT INTO ended VALUES (NEW.principal, 1, NEW.log_bytes, 0)
        ON CONFLICT (principal) DO UPDATE SET
            execs = execs + 1, log_bytes = log_bytes + NEW.log_bytes;
END;

CREATE TRIGGER execs_deleted AFTER DELETE ON execs WHEN OLD.ended_unix_ms IS NOT NULL BEGIN
    UPDATE ended SET execs = execs - 1, log_bytes = log_bytes - OLD.log_bytes
        WHERE principal = OLD.principal;
    DELETE FROM ended WHERE principal = OLD.principal AND execs = 0 AND containers = 0;
END;

CREATE TRIGGER containers_inserted AFTER INSERT ON containers
    WHEN NEW.ended_unix_ms IS NOT NULL BEGIN
    INSERT INTO ended VALUES (NEW.principal, 0, 0, 1)
        ON CONFLICT (principal) DO UPDATE SET containers = containers + 1;
END;

CREATE TRIGGER containers_ended AFTER UPDATE OF ended_unix_ms ON containers
    WHEN OLD.ended_unix_ms IS NULL AND NEW.ended_unix_ms IS NOT NULL BEGIN
    INSERT INTO ended VALUES (NEW.principal, 0, 0, 1)
        ON CONFLICT (principal) DO UPDATE SET containers = containers + 1;
END;

CREATE TRIGGER containers_revived AFTER UPDATE OF ended_unix_ms ON containers
    WHEN OLD.ended_unix_ms IS NOT NULL AND NEW.ended_unix_ms IS NULL BEGIN
    UPDATE ended SET containers = containers - 1 WHERE principal = OLD.principal;
    DELETE FROM ended WHERE principal = OLD.principal AND execs = 0 AND containers = 0;
END;

CREATE TRIGGER containers_deleted AFTER DELETE ON containers
    WHEN OLD.ended_unix_ms IS NOT NULL BEGIN
    UPDATE ended SET containers = containers - 1 WHERE principal = OLD.principal;
    DELETE FROM ended WHERE principal = OLD.principal AND execs = 0 AND containers = 0;
END;
