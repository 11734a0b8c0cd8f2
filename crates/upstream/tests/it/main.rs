//! The room of upstream servers, with real processes on the other side.

mod faults;
mod fixture;
mod life;
mod network;
mod real;
