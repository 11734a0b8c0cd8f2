//! hotcell
fn main() {}
