//! The agent as a real process, over its protocol.

mod bench;
mod exec_cleanup;
mod exec_end;
mod exec_input;
mod exec_parse;
mod exec_run;
mod exec_stream;
mod files_archive;
mod files_basics;
mod files_batch;
mod files_endless;
mod files_hostile;
mod files_listing;
mod files_mounts;
mod files_races;
mod files_trees;
mod files_write;
mod handshake;
mod harness;
mod memory;
mod trust;
mod tunnels;
mod warm;
mod warm_exec;
mod warm_same;
