-- The egress profile of a container; none: it reaches nothing.
ALTER TABLE containers ADD COLUMN egress TEXT;
