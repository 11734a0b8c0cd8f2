-- How far the audit log was when it was last on the disk, and where it begins: what is missing
-- between the two was not removed by us. One row.
CREATE TABLE ledger_anchor (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    seq INTEGER NOT NULL,
    hash TEXT NOT NULL,
    first_kept INTEGER NOT NULL
) STRICT;
