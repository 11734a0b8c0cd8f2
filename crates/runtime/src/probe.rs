//! Finds out what this host can isolate and limit, by doing it.
