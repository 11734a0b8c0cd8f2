use hotcell_domain::Bytes;

use super::*;

const MIB: u64 = 1 << 20;

fn limits() -> Limits {
    Limits {
        disk: Bytes::new(100 * MIB).unwrap(),
        ..Limits::default()
    }
}

fn uses(mib: u64, files: u64) -> DiskUse {
    DiskUse {
        bytes: mib * MIB,
        files,
        is_beyond_measure: false,
        is_busy: false,
    }
}

fn saw(state: &DiskState, used: DiskUse) -> Verdict {
    state.saw(used, &limits(), state.writes(), Duration::ZERO)
}

fn said(result: Result<(), ServiceError>) -> String {
    result.unwrap_err().to_string()
}

#[tokio::test]
async fn what_goes_over_is_ended_once_and_again_only_if_it_grows() {
    let state = DiskState::default();
    assert_eq!(saw(&state, uses(100, 1)), Verdict::Within);
    assert!(state.check_write(&limits()).is_ok());
    assert_eq!(saw(&state, uses(101, 1)), Verdict::End);
    assert_eq!(saw(&state, uses(101, 1)), Verdict::Over);
    // A program that deletes may write a little.
    assert_eq!(saw(&state, uses(102, 1)), Verdict::Over);
    assert!(state.check_start(&limits()).is_ok());
    assert_eq!(saw(&state, uses(103, 1)), Verdict::End);
    assert_eq!(
        said(state.check_write(&limits())),
        "the container is over its disk limit of 100 MiB and 10000 files: nothing more is written \
         until files are deleted (it uses 103 MiB and 1 files); fs_delete deletes them, kill ends the container"
    );
    assert_eq!(saw(&state, uses(100, 1)), Verdict::Recovered);
    assert!(state.check_write(&limits()).is_ok());
    assert_eq!(saw(&state, uses(1, 10_001)), Verdict::End);
}

#[tokio::test]
async fn far_over_the_limit_nothing_is_started() {
    let state = DiskState::default();
    assert_eq!(saw(&state, uses(125, 1)), Verdict::End);
    assert!(state.check_start(&limits()).is_ok());
    assert_eq!(saw(&state, uses(127, 1)), Verdict::End);
    assert!(said(state.check_start(&limits())).contains("nothing is started"));
    let deep = DiskUse {
        is_beyond_measure: true,
        ..uses(1, 1)
    };
    assert_eq!(saw(&DiskState::default(), deep), Verdict::End);
}

#[tokio::test(start_paused = true)]
async fn only_what_may_write_is_looked_at_and_long_looks_are_followed_by_long_pauses() {
    let state = DiskState::default();
    assert!(state.is_due(Instant::now()));
    saw(&state, uses(1, 1));
    let later = || Instant::now() + Duration::from_hours(1);
    assert!(!state.is_due(later()), "nothing runs in it");
    state.may_write();
    assert!(!state.is_due(Instant::now()), "too soon");
    assert!(state.is_due(Instant::now() + LOOK_INTERVAL));
    let busy = DiskUse {
        is_busy: true,
        ..uses(1, 1)
    };
    let took = Duration::from_secs(4);
    state.saw(busy, &limits(), state.writes(), took);
    assert!(!state.is_due(Instant::now() + took));
    assert!(state.is_due(Instant::now() + took * PAUSE_PER_LOOK));
}

#[tokio::test(start_paused = true)]
async fn a_container_in_which_nothing_has_run_is_not_looked_at_again() {
    let state = DiskState::default();
    let (some, more) = (Duration::from_millis(5), Duration::from_millis(6));
    assert!(!state.has_rested(Some(some)), "nobody has looked yet");
    let busy = DiskUse {
        is_busy: true,
        ..uses(1, 1)
    };
    saw(&state, busy);
    assert!(state.has_rested(Some(some)));
    assert!(!state.is_due(Instant::now()), "it has a pause");
    assert!(!state.has_rested(Some(more)), "something has run");
    assert!(state.has_rested(Some(more)));
    state.may_write();
    assert!(!state.has_rested(Some(more)), "a file was sent");
    saw(&state, busy);
    state.did_not_see();
    assert!(!state.has_rested(Some(more)), "the last look failed");
    assert!(!state.has_rested(None), "its engine does not tell");
    assert!(!state.has_rested(None));
}
