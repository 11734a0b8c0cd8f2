//! The fake engine without faults passes the suite, as far as it claims anything: with the current
//! agent, and with an older one.

use std::path::PathBuf;
use std::sync::Arc;

use hotcell_domain::{ImageRef, Policy};
use hotcell_engine::Engine;
use hotcell_testkit::conformance::{Reopen, Subject, Traits};
use hotcell_testkit::fake::{Fake, Faults};

hotcell_testkit::conformance_tests!(subject);

mod older_agent {
    use super::subject_with_older_agent;

    hotcell_testkit::conformance_tests!(subject_with_older_agent);
}

async fn subject() -> Subject {
    subject_with(hotcell_testkit::agent::program())
}

async fn subject_with_older_agent() -> Subject {
    subject_with(hotcell_testkit::agent::older_program())
}

fn subject_with(program: PathBuf) -> Subject {
    // Its path does not fit into a socket address.
    let state = tempfile::Builder::new()
        .prefix(&"long".repeat(40))
        .tempdir();
    let state = state.expect("a temporary directory");
    let directory = state.path().to_owned();
    let make = move || -> Arc<dyn Engine> {
        let faults = Faults::none();
        Arc::new(Fake::new(program.clone(), directory.clone(), faults))
    };
    let engine = make();
    let reopen: Reopen = Box::new(move || {
        let engine = make();
        Box::pin(async { engine })
    });
    Subject {
        engine,
        image: ImageRef::Host,
        policy: Policy::default(),
        traits: Traits {
            orphans: true,
            ..Traits::default()
        },
        reopen: Some(reopen),
        keep: Box::new(state),
    }
}
