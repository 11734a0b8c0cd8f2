//! Spans on their way to a collector, which decodes them by the official schema.

mod export;
