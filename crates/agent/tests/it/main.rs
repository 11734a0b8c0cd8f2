//! The agent as the server meets it: a real process, over its own protocol.

mod bench;
mod door;
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
mod harness;
mod tunnels;
