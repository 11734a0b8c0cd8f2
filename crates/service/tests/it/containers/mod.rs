//! Containers through the service, on the fake engine and a real store.

mod bounds;
mod budget;
mod clock;
mod durable;
mod end;
mod engines;
mod faulty_engine;
mod garbage;
mod many;
mod operations;
mod pool;
mod pool_crash;
mod pool_faults;
mod pool_image;
mod reconcile;
mod restart;
mod revive;
mod spawn;
mod status;
