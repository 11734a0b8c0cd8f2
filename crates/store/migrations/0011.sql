-- Runs of scripts that called other MCP servers, and each of their calls: written before it is sent
-- and when it is answered. A call without an end has an unknown outcome.
CREATE TABLE runs (
    id TEXT PRIMARY KEY,
    principal TEXT NOT NULL,
    created_unix_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX runs_oldest ON runs (principal, created_unix_ms, id);

CREATE TABLE calls (
    run TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    number INTEGER NOT NULL,
    server TEXT NOT NULL,
    tool TEXT NOT NULL,
    digest TEXT NOT NULL,
    began_unix_ms INTEGER NOT NULL,
    ended_unix_ms INTEGER,
    outcome TEXT,
    result TEXT,
    PRIMARY KEY (run, number)
) STRICT, WITHOUT ROWID;

-- What scripts of a principal remember: values, and functions that they saved.
CREATE TABLE memory (
    principal TEXT NOT NULL,
    space TEXT NOT NULL,
    key TEXT NOT NULL,
    value TEXT NOT NULL,
    metadata TEXT,
    version INTEGER NOT NULL,
    created_unix_ms INTEGER NOT NULL,
    updated_unix_ms INTEGER NOT NULL,
    PRIMARY KEY (principal, space, key)
) STRICT, WITHOUT ROWID;
