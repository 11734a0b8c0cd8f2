use std::sync::Weak;

use hotcell_domain::{Command, ContainerId, Name};
use hotcell_store::ExecRow;
use proptest::prelude::*;

use super::*;
use crate::Abandonment;

const PRINCIPALS: [&str; 3] = ["ann", "bob", "eve"];
const QUOTA: Quota = Quota {
    disk_bytes: 1,
    containers: 1,
    execs: 4,
    spawns_per_minute: 1,
    output_bytes: 1000,
};

fn exec(number: u8, principal: &str) -> Arc<LiveExec> {
    let row = ExecRow {
        id: ExecId::from_parts(u64::from(number), [number; 10]),
        container: ContainerId::from_parts(1, [0; 10]),
        principal: Principal::new(Name::parse(principal).unwrap()),
        key: None,
        command: Command::new(vec!["true".into()]).unwrap(),
        created_unix_ms: 1,
        oom_kills_before: 0,
        ended_unix_ms: None,
        end: None,
    };
    Arc::new(LiveExec::new(
        row,
        Weak::new(),
        None,
        Abandonment::default(),
    ))
}

#[derive(Debug, Clone)]
enum Step {
    Insert(u8),
    Find(u8),
    Remove(u8),
    Write(u8, u64, u64),
}

fn step() -> impl Strategy<Value = Step> {
    let number = 0..12_u8;
    prop_oneof![
        3 => number.clone().prop_map(Step::Insert),
        1 => number.clone().prop_map(Step::Find),
        2 => number.clone().prop_map(Step::Remove),
        3 => (number, 0..600_u64, 100..1200_u64).prop_map(|(id, bytes, max)| Step::Write(id, bytes, max)),
    ]
}

proptest! {
    #[test]
    fn sums_are_what_counting_gives_whatever_happens(steps in prop::collection::vec(step(), 0..80)) {
        let execs: Vec<_> = (0..12).map(|number| exec(number, PRINCIPALS[usize::from(number) % 3])).collect();
        let live = LiveExecs::default();
        for step in steps {
            match step {
                Step::Insert(number) => {
                    let exec = &execs[usize::from(number)];
                    if live.get(&exec.id).is_none() {
                        let before = live.used_by(&exec.principal);
                        let is_full = before.execs >= QUOTA.execs || before.log_bytes >= QUOTA.output_bytes;
                        prop_assert_eq!(live.insert(exec, &QUOTA).is_err(), is_full);
                    }
                }
                Step::Find(number) => live.insert_found(&execs[usize::from(number)]),
                Step::Remove(number) => live.remove(&execs[usize::from(number)].id),
                Step::Write(number, bytes, max) => live.count_output(&execs[usize::from(number)].id, bytes, max),
            }
            for name in PRINCIPALS {
                let principal = Principal::new(Name::parse(name).unwrap());
                let index = live.lock();
                let own = index.by_id.values().filter(|entry| entry.exec.principal == principal);
                let counted = own.fold(ExecUse::default(), |sum, entry| ExecUse {
                    execs: sum.execs + 1,
                    log_bytes: sum.log_bytes + entry.log_bytes,
                });
                prop_assert_eq!(index.used_by(&principal), counted);
            }
        }
        for exec in &execs {
            live.remove(&exec.id);
        }
        prop_assert!(live.lock().used.is_empty());
    }
}
