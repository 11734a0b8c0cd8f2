//! The Python side: files that are written into each container in which a script runs.
//!
//! Scripts run in the same process and may change whatever is there; the server believes none of it.

/// The file that is run.
pub const MAIN: &str = "run.py";

/// All of them, by name.
pub const FILES: &[(&str, &str)] = &[
    (MAIN, include_str!("python/run.py")),
    ("hotcell_run.py", include_str!("python/hotcell_run.py")),
    (
        "hotcell_channel.py",
        include_str!("python/hotcell_channel.py"),
    ),
    ("hotcell_check.py", include_str!("python/hotcell_check.py")),
    ("hotcell_mcp.py", include_str!("python/hotcell_mcp.py")),
    ("hotcell_show.py", include_str!("python/hotcell_show.py")),
    ("hotcell_tools.py", include_str!("python/hotcell_tools.py")),
];
