//! The embedded engine passes the suite that every engine must pass.

use std::sync::Arc;

use hotcell_domain::{ImageRef, Policy};
use hotcell_engine::Engine;
use hotcell_runtime::probe;
use hotcell_testkit::conformance::{Reopen, Subject, Traits};

use crate::support;

hotcell_testkit::conformance_tests!(subject);

/// What the engine claims below; where it does not, cases are excluded, and this says why.
#[test]
fn containers_can_have_a_root_here() {
    if !has_root() {
        let reason = "there are no subordinate ids on this host";
        hotcell_testkit::skip(hotcell_testkit::Need::ContainerRoot, reason);
    }
}

fn has_root() -> bool {
    rustix::process::geteuid().is_root() || probe::subordinate_ids().is_ok()
}

async fn subject() -> Subject {
    let state = support::scratch();
    let home = state.path().join("home");
    let make = move || -> Arc<dyn Engine> { Arc::new(support::engine(&home)) };
    let engine = make();
    let reopen: Reopen = Box::new(move || {
        let engine = make();
        Box::pin(async { engine })
    });
    Subject {
        engine,
        image: ImageRef::Host,
        policy: Policy {
            allow_root: true,
            ..Policy::default()
        },
        traits: Traits {
            root: has_root(),
            ..Traits::ALL
        },
        reopen: Some(reopen),
        keep: Box::new(state),
    }
}
