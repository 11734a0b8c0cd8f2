//! What callers ask of the service, on the fake engine and a real store.

mod abandonment;
mod code;
mod containers;
mod disk;
mod disk_limit;
mod exec_end;
mod exec_follow;
mod exec_input;
mod exec_memory;
mod exec_recover;
mod exec_run;
mod exec_stream;
mod file_basics;
mod file_transfer;
mod fixture;
mod notebook;
mod quotas;
mod recorded;
mod simulation;
