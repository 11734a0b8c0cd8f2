//! The store on a disk that is full.

mod full_disk;
