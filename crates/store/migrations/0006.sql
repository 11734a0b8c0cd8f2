-- Processes of its container that had been killed for want of memory before an exec was asked
-- for.
ALTER TABLE execs ADD COLUMN oom_kills_before INTEGER NOT NULL DEFAULT 0;
