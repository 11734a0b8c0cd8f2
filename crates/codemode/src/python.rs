//! The Python side: files that are written into each container in which a script runs.
//!
//! Scripts run in the same process and may change whatever is there; the server believes none of it.

/// The file that is run.
pub const MAIN: &str = "run.py";

/// How many of the files every script needs: the first ones.
const BASIC_FILES: usize = 3;

/// A script with none of these words calls no server and has no memory. `hotcell_run.py` knows the same ones.
const MENTIONS: [&str; 5] = ["mcp", "MCP", "memor", "save_tool", "saved_tools"];

/// The files that a script needs.
pub fn files_for(code: &str) -> &'static [(&'static str, &'static str)] {
    if MENTIONS.iter().any(|word| code.contains(word)) {
        return FILES;
    }
    &FILES[..BASIC_FILES]
}

/// All of them, by name. Scripts that need more than others need the same ones first.
const FILES: &[(&str, &str)] = &[
    (MAIN, include_str!("python/run.py")),
    ("hotcell_run.py", include_str!("python/hotcell_run.py")),
    ("hotcell_show.py", include_str!("python/hotcell_show.py")),
    (
        "hotcell_channel.py",
        include_str!("python/hotcell_channel.py"),
    ),
    ("hotcell_check.py", include_str!("python/hotcell_check.py")),
    ("hotcell_mcp.py", include_str!("python/hotcell_mcp.py")),
    ("hotcell_tools.py", include_str!("python/hotcell_tools.py")),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_itself_looks_for_the_same_words() {
        let words = MENTIONS.map(|word| format!("\"{word}\"")).join(", ");
        let (_, run) = FILES[1];
        assert!(run.contains(&format!("MENTIONS = ({words})")), "{words}");
    }

    #[test]
    fn a_script_that_calls_nobody_needs_few_files_and_they_need_no_others() {
        let basic = files_for("print(1)");
        assert_eq!(basic.len(), BASIC_FILES);
        assert_eq!(files_for("await mcp_a.b()").len(), FILES.len());
        let (_, show) = basic[2];
        for (name, _) in &FILES[BASIC_FILES..] {
            let module = name.trim_end_matches(".py");
            assert!(!show.contains(module), "{module}");
        }
    }
}
