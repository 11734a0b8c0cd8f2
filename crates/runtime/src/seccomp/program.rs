//! Compiles verdicts per system call into a seccomp (BPF) program.
//!
//! The program is a binary search over ranges of call numbers. The kernel runs a new filter once
//! for every known call, and later for each call whose arguments matter. Compared with a linear
//! list, this saves more than a millisecond per container start.

use std::collections::BTreeMap;

use libc::{
    BPF_ABS, BPF_ALU, BPF_AND, BPF_JA, BPF_JEQ, BPF_JGE, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_W,
    sock_filter,
};

/// The only `AUDIT_ARCH_*` that is accepted.
#[cfg(target_arch = "x86_64")]
const ARCH: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCH: u32 = 0xc000_00b7;

/// Offsets in `struct seccomp_data` of the call number, the architecture and the first argument
/// (low half first: little-endian).
const NUMBER_OFFSET: u32 = 0;
const ARCH_OFFSET: u32 = 4;
const ARGUMENT_OFFSET: u32 = 16;
const ARGUMENT_LEN: u32 = 8;
const HALF_LEN: u32 = 4;

/// What happens to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    Allow,
    /// Fails with this errno.
    Fail(i32),
    /// Is not made and returns 0.
    Pretend,
    /// Waits for the answer of the filter's listener.
    Notify,
}

/// How a call is judged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Regardless of its arguments.
    Always(Action),
    /// By the first rule that matches, else by the last action.
    ByArguments(Vec<(Rule, Action)>, Action),
}

/// Matches if all its conditions do.
pub(crate) type Rule = Vec<Condition>;

/// A condition on one half of an argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Condition {
    /// Index of the argument, from 0.
    pub argument: u8,
    /// The kernel reads only the low half of an `int`, and both halves of a pointer.
    pub half: Half,
    /// The bits that are compared.
    pub mask: u32,
    pub test: Test,
}

/// 32 bits of an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Half {
    Low,
    High,
}

/// What the bits of a condition are compared with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Test {
    Is(u32),
    IsNot(u32),
    /// One of 1 to [`VALUES_MAX`].
    IsAmong(Vec<u32>),
}

/// The most values of one condition: a conditional jump must reach over all of them.
pub(crate) const VALUES_MAX: usize = 200;

/// Compiles the program; calls without a verdict get `otherwise`. A call of another architecture
/// kills the process.
pub(crate) fn compile(verdicts: &BTreeMap<u32, Verdict>, otherwise: &Verdict) -> Vec<sock_filter> {
    let mut program = vec![
        load(ARCH_OFFSET),
        jump(BPF_JEQ, ARCH, 1, 0),
        ret(libc::SECCOMP_RET_KILL_PROCESS),
        load(NUMBER_OFFSET),
    ];
    program.extend(search(&ranges(verdicts, otherwise)));
    program
}

/// Splits the call numbers into ranges with equal verdicts, each given by its start.
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
    // The distance is too long for a conditional jump.
    let over = u32::try_from(below.len()).unwrap_or(u32::MAX);
    let mut program = vec![jump(BPF_JGE, *start, 0, 1), plain(BPF_JMP | BPF_JA, over)];
    program.extend(below);
    program.extend(above);
    program
}

fn decide(verdict: &Verdict) -> Vec<sock_filter> {
    match verdict {
        Verdict::Always(action) => vec![take(*action)],
        Verdict::ByArguments(rules, otherwise) => {
            let rules = rules.iter();
            let mut program: Vec<_> = rules
                .flat_map(|(rule, action)| act_if(rule, *action))
                .collect();
            program.push(take(*otherwise));
            program
        }
    }
}

/// Takes the action if the rule matches, else falls through.
fn act_if(rule: &[Condition], action: Action) -> Vec<sock_filter> {
    let mut program = vec![take(action)];
    for condition in rule.iter().rev() {
        let mut checked = check(condition, program.len());
        checked.append(&mut program);
        program = checked;
    }
    program
}

/// Falls through if the condition holds, else skips `rest` more instructions.
fn check(condition: &Condition, rest: usize) -> Vec<sock_filter> {
    let rest = u8::try_from(rest).expect("a rule has a handful of conditions");
    let half = match condition.half {
        Half::Low => 0,
        Half::High => HALF_LEN,
    };
    let offset = ARGUMENT_OFFSET + u32::from(condition.argument) * ARGUMENT_LEN + half;
    let mut program = vec![load(offset)];
    if condition.mask != u32::MAX {
        program.push(plain(BPF_ALU | BPF_AND | BPF_K, condition.mask));
    }
    match &condition.test {
        Test::Is(value) => program.push(jump(BPF_JEQ, *value, 0, rest)),
        Test::IsNot(value) => program.push(jump(BPF_JEQ, *value, rest, 0)),
        Test::IsAmong(values) => program.extend(among(values, rest)),
    }
    program
}

/// The same as `check`, for a list of values.
fn among(values: &[u32], rest: u8) -> Vec<sock_filter> {
    assert!(
        (1..=VALUES_MAX).contains(&values.len()),
        "a list has some values, and not too many to jump over"
    );
    let mut program = Vec::new();
    for (left, value) in (0_u8..).zip(values.iter().rev()) {
        // Only the last comparison knows that none matched.
        let no = if left == 0 { rest } else { 0 };
        program.push(jump(BPF_JEQ, *value, left, no));
    }
    program.reverse();
    program
}

fn take(action: Action) -> sock_filter {
    match action {
        Action::Allow => ret(libc::SECCOMP_RET_ALLOW),
        Action::Fail(errno) => fail(errno),
        Action::Pretend => fail(0),
        Action::Notify => ret(libc::SECCOMP_RET_USER_NOTIF),
    }
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
pub(crate) mod tests {
    use super::*;

    /// Interprets a program as the kernel would.
    pub(crate) fn simulate(program: &[sock_filter], number: u32, arguments: &[u64]) -> u32 {
        let word = |offset| match offset {
            NUMBER_OFFSET => number,
            ARCH_OFFSET => ARCH,
            _ => {
                let at = offset - ARGUMENT_OFFSET;
                let argument = arguments.get((at / ARGUMENT_LEN) as usize).copied();
                let bytes = argument.unwrap_or(0).to_le_bytes();
                let half = (at % ARGUMENT_LEN) as usize;
                u32::from_le_bytes([
                    bytes[half],
                    bytes[half + 1],
                    bytes[half + 2],
                    bytes[half + 3],
                ])
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
        let actions = BTreeMap::from([
            (0, Action::Allow),
            (1, Action::Allow),
            (3, Action::Fail(38)),
            (4, Action::Allow),
            (5, Action::Pretend),
            (300, Action::Allow),
            (301, Action::Notify),
        ]);
        let verdicts = actions
            .iter()
            .map(|(number, action)| (*number, Verdict::Always(*action)));
        let program = compile(&verdicts.collect(), &Verdict::Always(Action::Fail(1)));
        for number in (0..600).chain([u32::MAX, 0x4000_0001]) {
            let expected = match actions.get(&number) {
                Some(Action::Allow) => libc::SECCOMP_RET_ALLOW,
                Some(Action::Fail(errno)) => fail(*errno).k,
                Some(Action::Pretend) => libc::SECCOMP_RET_ERRNO,
                Some(Action::Notify) => libc::SECCOMP_RET_USER_NOTIF,
                None => fail(1).k,
            };
            assert_eq!(simulate(&program, number, &[]), expected, "{number}");
        }
    }

    /// Judges calls by these rules; `Fail(1)` if none matches.
    fn judged(rules: Vec<(Rule, Action)>) -> impl Fn(&[u64]) -> u32 {
        let verdict = Verdict::ByArguments(rules, Action::Fail(1));
        let program = compile(&[(7, verdict)].into(), &Verdict::Always(Action::Allow));
        move |arguments| simulate(&program, 7, arguments)
    }

    fn condition(argument: u8, half: Half, mask: u32, test: Test) -> Condition {
        Condition {
            argument,
            half,
            mask,
            test,
        }
    }

    #[test]
    fn a_rule_needs_all_conditions_and_the_first_rule_that_holds_decides() {
        let low = |argument, test| condition(argument, Half::Low, 0xff, test);
        let rules = vec![
            (
                vec![low(0, Test::Is(1)), low(1, Test::IsNot(2))],
                Action::Allow,
            ),
            (vec![low(0, Test::Is(1))], Action::Pretend),
            (vec![low(0, Test::Is(9))], Action::Allow),
        ];
        let judged = judged(rules);
        for arguments in [[1, 3], [9, 2], [0x101, 3]] {
            assert_eq!(judged(&arguments), libc::SECCOMP_RET_ALLOW);
        }
        for arguments in [[1, 2], [1, 0x102]] {
            assert_eq!(judged(&arguments), libc::SECCOMP_RET_ERRNO);
        }
        assert_eq!(judged(&[2, 3]), fail(1).k);
    }

    #[test]
    fn a_pointer_is_null_only_if_both_halves_are() {
        let is_zero = |half| condition(2, half, u32::MAX, Test::Is(0));
        let judged = judged(vec![(
            vec![is_zero(Half::Low), is_zero(Half::High)],
            Action::Allow,
        )]);
        assert_eq!(judged(&[7, 7, 0]), libc::SECCOMP_RET_ALLOW);
        for pointer in [1, 1 << 32, 0x7fff_0000_0000, u64::MAX] {
            assert_eq!(judged(&[7, 7, pointer]), fail(1).k, "{pointer:#x}");
        }
    }

    #[test]
    fn each_value_of_a_list_is_found_and_no_other() {
        for length in [1, 2, 3, VALUES_MAX] {
            let values: Vec<u32> = (1..).step_by(3).take(length).collect();
            let list = condition(1, Half::Low, u32::MAX, Test::IsAmong(values.clone()));
            let also = condition(0, Half::Low, u32::MAX, Test::Is(5));
            let judged = judged(vec![(vec![list, also], Action::Allow)]);
            for value in 0..=700 {
                let expected = if values.contains(&value) {
                    libc::SECCOMP_RET_ALLOW
                } else {
                    fail(1).k
                };
                assert_eq!(judged(&[5, value.into()]), expected, "{value} of {length}");
                assert_eq!(judged(&[4, value.into()]), fail(1).k);
            }
        }
    }
}
