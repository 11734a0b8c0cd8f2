-- What the log of an exec that has ended takes of the disk.
ALTER TABLE execs ADD COLUMN log_bytes INTEGER NOT NULL DEFAULT 0;

-- What has ended goes in this order where a principal has too much of it.
CREATE INDEX execs_oldest ON execs (principal, ended_unix_ms, id)
    WHERE ended_unix_ms IS NOT NULL;
CREATE INDEX containers_oldest ON containers (principal, ended_unix_ms, id)
    WHERE ended_unix_ms IS NOT NULL;

-- How much has ended of each principal and is remembered: kept up to date by the triggers
-- below, so that nobody has to count rows.
CREATE TABLE ended (
    principal TEXT PRIMARY KEY,
    execs INTEGER NOT NULL,
    log_bytes INTEGER NOT NULL,
    containers INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

INSERT INTO ended
    SELECT principal, sum(execs), 0, sum(containers) FROM (
        SELECT principal, 1 AS execs, 0 AS containers FROM execs
            WHERE ended_unix_ms IS NOT NULL
        UNION ALL
        SELECT principal, 0, 1 FROM containers WHERE ended_unix_ms IS NOT NULL
    ) GROUP BY principal;

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
