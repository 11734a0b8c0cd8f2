//! The fake engine without faults passes the suite, as far as it claims anything.

use std::sync::Arc;

use hotcell_domain::{ImageRef, Policy};
use hotcell_engine::Engine;
use hotcell_testkit::conformance::{Reopen, Subject, Traits};
use hotcell_testkit::fake::{Fake, Faults};

hotcell_testkit::conformance_tests!(subject);

async fn subject() -> Subject {
    // Its path does not fit into the address of a socket.
    let state = tempfile::Builder::new()
        .prefix(&"long".repeat(40))
        .tempdir();
    let state = state.expect("a temporary directory");
    let directory = state.path().to_owned();
    let make = move || -> Arc<dyn Engine> {
        let program = hotcell_testkit::agent::program();
        Arc::new(Fake::new(program, directory.clone(), Faults::none()))
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
