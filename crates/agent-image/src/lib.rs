//! The agent's static binary, as bytes. The build script makes it.

#![forbid(unsafe_code)]

/// A static `hotcell-agent` for this platform.
pub static AGENT: &[u8] = include_bytes!(env!("HOTCELL_AGENT_IMAGE"));

#[cfg(test)]
mod tests {
    use super::AGENT;

    const BYTES_MAX: usize = 4 << 20;

    #[test]
    fn the_agent_is_a_small_elf_without_an_interpreter() {
        assert!(AGENT.starts_with(b"\x7fELF"));
        assert!(AGENT.len() < BYTES_MAX, "{} bytes", AGENT.len());
        let interpreter = b"/ld-linux";
        assert!(
            !AGENT
                .windows(interpreter.len())
                .any(|window| window == interpreter)
        );
    }
}
