-- Containers that are ready and nobody's. One is here or in `containers`, never in both.
CREATE TABLE warm (
    id TEXT PRIMARY KEY,
    spec TEXT NOT NULL,
    created_unix_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

ALTER TABLE containers ADD COLUMN is_warm INTEGER NOT NULL DEFAULT 0;
