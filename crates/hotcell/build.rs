//! Has the linker keep one of several functions with the same code, in releases. Generic code is full of them.
//!
//! Only for the target whose linker is LLD unless somebody changes it: GNU's does not know the option.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let is = |name: &str, value: &str| std::env::var(name).is_ok_and(|found| found == value);
    if is("PROFILE", "release") && is("TARGET", "x86_64-unknown-linux-gnu") {
        println!("cargo::rustc-link-arg-bin=hotcell=-Wl,--icf=all");
    }
}
