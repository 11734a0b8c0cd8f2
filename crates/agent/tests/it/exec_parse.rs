//! Any `start` request is parsed within the bounds or refused.

use hotcell_agent::exec::Start;
use hotcell_agent_api::bounds::{ARGV_ENV_BYTES_MAX, ARGV_MAX, ENV_MAX, PATH_BYTES_MAX};
use hotcell_agent_api::v1::{EnvVar, ExecStart, Winsize};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

fn text() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        vec(any::<u8>(), 0..40),
        vec(b'a'..=b'z', 1..20),
        Just(b"PATH".to_vec()),
        Just(b"/a:/b::".to_vec()),
        (4000_usize..5000).prop_map(|size| vec![b'/'; size]),
    ]
}

prop_compose! {
    fn start()(
        exec_id in ".{0,70}",
        argv in vec(text(), 0..6),
        env in vec((text(), text()), 0..6),
        cwd in text(),
        (uid, gid) in (option::of(any::<u32>()), option::of(any::<u32>())),
        (timeout_ms, grace_ms) in (any::<u64>(), any::<u64>()),
        small in any::<bool>(),
        stdin in any::<bool>(),
        input in option::weighted(0.1, text()),
        tty in option::of((any::<u32>(), any::<u32>())),
    ) -> ExecStart {
        ExecStart {
            exec_id: if small { "e_1".into() } else { exec_id },
            argv: argv.into_iter().map(Into::into).collect(),
            env: env
                .into_iter()
                .map(|(name, value)| EnvVar { name: name.into(), value: value.into() })
                .collect(),
            cwd: if small { "/".into() } else { cwd.into() },
            uid,
            gid,
            timeout_ms: if small { timeout_ms % 1000 } else { timeout_ms },
            grace_ms: if small { grace_ms % 1000 } else { grace_ms },
            stdin,
            tty: tty.map(|(rows, cols)| Winsize { rows: rows % 70_000, cols: cols % 70_000 }),
            warm_interpreter: 0,
            cleanup: None,
            input: input.map(Into::into),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn a_start_is_within_its_bounds_or_refused(asked in start()) {
        let Ok(start) = Start::parse(&asked) else {
            return Ok(());
        };
        prop_assert!(!start.argv.is_empty() && start.argv.len() <= ARGV_MAX);
        prop_assert!(start.env.len() <= ENV_MAX);
        prop_assert_eq!(start.argv.len(), asked.argv.len());
        prop_assert!(start.env.iter().all(|var| var.as_bytes().contains(&b'=')));
        prop_assert!(start.cwd.as_bytes().starts_with(b"/"));
        prop_assert!(start.input.is_none() || start.stdin);
        prop_assert!(start.cwd.as_bytes().len() < PATH_BYTES_MAX);
        let total: usize = start.argv.iter().chain(&start.env).map(|text| text.count_bytes()).sum();
        prop_assert!(total <= ARGV_ENV_BYTES_MAX);
        prop_assert!(start.candidates.iter().all(|path| path.as_bytes().contains(&b'/')));
    }
}
