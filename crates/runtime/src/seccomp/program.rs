//! Compiles verdicts per system call into a program for the kernel's filter.
//!
//! A binary search over ranges of numbers: the kernel runs a new filter once for every call
//! it knows, and afterwards for each call whose arguments matter, so a short way to the
//! verdict saves more than a millisecond of each container's start over a list.

use std::collections::BTreeMap;

use libc::{
    BPF_ABS, BPF_ALU, BPF_AND, BPF_JA, BPF_JEQ, BPF_JGE, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_W,
    sock_filter,
};

/// `AUDIT_ARCH_*` of the only kind of calls that is let through.
#[cfg(target_arch = "x86_64")]
const ARCH: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCH: u32 = 0xc000_00b7;

/// Where `struct seccomp_data` holds the call's number, the architecture and the low half of
/// the first argument, on a little-endian machine.
const NUMBER_OFFSET: u32 = 0;
const ARCH_OFFSET: u32 = 4;
const ARGUMENT_OFFSET: u32 = 16;
const ARGUMENT_LEN: u32 = 8;

/// What becomes of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It is made.
    Allow,
    /// It fails with this errno.
    Fail(i32),
    /// It is made if one of these holds, and fails with this errno otherwise.
    AllowIf(Vec<Rule>, i32),
}

/// Holds if all its conditions do.
pub type Rule = Vec<Condition>;

/// A claim about the low 32 bits of an argument; the kernel reads no more of those that
/// are looked at here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Condition {
    /// Which argument, from 0.
    pub argument: u8,
    /// The bits that count.
    pub mask: u32,
    /// What they are compared with.
    pub value: u32,
    /// Whether they must be equal, or must not.
    pub equal: bool,
}

/// The program that gives each call its verdict, and `otherwise` to those not named.
/// Calls of another architecture end the process.
pub fn compile(verdicts: &BTreeMap<u32, Verdict>, otherwise: &Verdict) -> Vec<sock_filter> {
    let mut program = vec![
        load(ARCH_OFFSET),
        jump(BPF_JEQ, ARCH, 1, 0),
        ret(libc::SECCOMP_RET_KILL_PROCESS),
        load(NUMBER_OFFSET),
    ];
    program.extend(search(&ranges(verdicts, otherwise)));
    program
}

/// Every number is in the range of the last start that is not above it.
fn ranges<'a>(
    verdicts: &'a BTreeMap<u32, Verdict>,
    otherwise: &'a Verdict,
) -> Vec<(u32, &'a Verdict)> {
    let mut ranges: Vec<(u32, &Verdict)> = vec![(0, otherwise)];
    let mut add = |start, verdict| match ranges.last_mut() {
        Some((_, last)) if *last == verdict => {}
        Some((same, last)) if *same == start => *last = verdict,
        _ => ranges.push((start, verdict)),
    };
    for (number, verdict) in verdicts {
        add(*number, verdict);
        if !verdicts.contains_key(&(number + 1)) {
            add(number + 1, otherwise);
        }
    }
    ranges
}

fn search(ranges: &[(u32, &Verdict)]) -> Vec<sock_filter> {
    if let [(_, verdict)] = ranges {
        return decide(verdict);
    }
    let (low, high) = ranges.split_at(ranges.len() / 2);
    let (below, above) = (search(low), search(high));
    let Some((start, _)) = high.first() else {
        return below;
    };
    // The distance does not fit into a conditional jump.
    let over = u32::try_from(below.len()).unwrap_or(u32::MAX);
    let mut program = vec![jump(BPF_JGE, *start, 0, 1), plain(BPF_JMP | BPF_JA, over)];
    program.extend(below);
    program.extend(above);
    program
}

fn decide(verdict: &Verdict) -> Vec<sock_filter> {
    match verdict {
        Verdict::Allow => vec![ret(libc::SECCOMP_RET_ALLOW)],
        Verdict::Fail(errno) => vec![fail(*errno)],
        Verdict::AllowIf(rules, errno) => {
            let mut program: Vec<_> = rules.iter().flat_map(|rule| allow_if(rule)).collect();
            program.push(fail(*errno));
            program
        }
    }
}

/// Allows if the rule holds, and goes on behind itself if not.
fn allow_if(rule: &[Condition]) -> Vec<sock_filter> {
    const CONDITION_LEN: usize = 3;
    let mut program = Vec::new();
    for (index, condition) in rule.iter().enumerate() {
        let conditions_left = rule.len() - 1 - index;
        let past_the_end = u8::try_from(conditions_left * CONDITION_LEN + 1)
            .expect("a rule has a handful of conditions");
        let (yes, no) = if condition.equal {
            (0, past_the_end)
        } else {
            (past_the_end, 0)
        };
        program.push(load(
            ARGUMENT_OFFSET + u32::from(condition.argument) * ARGUMENT_LEN,
        ));
        program.push(plain(BPF_ALU | BPF_AND | BPF_K, condition.mask));
        program.push(jump(BPF_JEQ, condition.value, yes, no));
    }
    program.push(ret(libc::SECCOMP_RET_ALLOW));
    program
}

fn fail(errno: i32) -> sock_filter {
    ret(libc::SECCOMP_RET_ERRNO | (errno.cast_unsigned() & libc::SECCOMP_RET_DATA))
}

fn ret(action: u32) -> sock_filter {
    plain(BPF_RET | BPF_K, action)
}

fn load(offset: u32) -> sock_filter {
    plain(BPF_LD | BPF_W | BPF_ABS, offset)
}

fn plain(code: u32, k: u32) -> sock_filter {
    instruction(code, 0, 0, k)
}

fn jump(test: u32, k: u32, yes: u8, no: u8) -> sock_filter {
    instruction(BPF_JMP | test | BPF_K, yes, no, k)
}

fn instruction(code: u32, jt: u8, jf: u8, k: u32) -> sock_filter {
    let code = u16::try_from(code).expect("codes of the classic filter have 16 bits");
    sock_filter { code, jt, jf, k }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// What the kernel would do with a program and a call.
    pub fn simulate(program: &[sock_filter], number: u32, arguments: &[u32]) -> u32 {
        let word = |offset| match offset {
            NUMBER_OFFSET => number,
            ARCH_OFFSET => ARCH,
            _ => {
                let index = (offset - ARGUMENT_OFFSET) / ARGUMENT_LEN;
                arguments.get(index as usize).copied().unwrap_or(0)
            }
        };
        let (mut accumulator, mut at) = (0, 0);
        loop {
            let sock_filter { code, jt, jf, k } = program[at];
            at += 1;
            let take = |holds| usize::from(if holds { jt } else { jf });
            match u32::from(code) {
                code if code == BPF_LD | BPF_W | BPF_ABS => accumulator = word(k),
                code if code == BPF_ALU | BPF_AND | BPF_K => accumulator &= k,
                code if code == BPF_JMP | BPF_JEQ | BPF_K => at += take(accumulator == k),
                code if code == BPF_JMP | BPF_JGE | BPF_K => at += take(accumulator >= k),
                code if code == BPF_JMP | BPF_JA => at += k as usize,
                code if code == BPF_RET | BPF_K => return k,
                code => panic!("unknown instruction {code}"),
            }
        }
    }

    #[test]
    fn every_number_gets_its_own_verdict() {
        let verdicts: BTreeMap<u32, Verdict> = [
            (0, Verdict::Allow),
            (1, Verdict::Allow),
            (3, Verdict::Fail(38)),
            (4, Verdict::Allow),
            (300, Verdict::Allow),
        ]
        .into();
        let program = compile(&verdicts, &Verdict::Fail(1));
        for number in (0..600).chain([u32::MAX, 0x4000_0001]) {
            let expected = match verdicts.get(&number) {
                Some(Verdict::Allow) => libc::SECCOMP_RET_ALLOW,
                Some(Verdict::Fail(errno)) => fail(*errno).k,
                _ => fail(1).k,
            };
            assert_eq!(simulate(&program, number, &[]), expected, "{number}");
        }
    }

    #[test]
    fn a_rule_needs_all_conditions_and_a_verdict_one_rule() {
        let is = |argument, value, equal| Condition {
            argument,
            mask: 0xff,
            value,
            equal,
        };
        let rules = vec![vec![is(0, 1, true), is(1, 2, false)], vec![is(0, 9, true)]];
        let verdicts = [(7, Verdict::AllowIf(rules, 1))].into();
        let program = compile(&verdicts, &Verdict::Allow);
        let allowed =
            |arguments: &[u32]| simulate(&program, 7, arguments) == libc::SECCOMP_RET_ALLOW;
        assert!(allowed(&[1, 3]) && allowed(&[9, 2]) && allowed(&[0x101, 3]));
        assert!(!allowed(&[1, 2]) && !allowed(&[2, 3]) && !allowed(&[1, 0x102]));
    }
}
