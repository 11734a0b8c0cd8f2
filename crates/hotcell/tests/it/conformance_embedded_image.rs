//! The embedded engine passes the suite on an image too: a static busybox and nothing else.

use std::sync::Arc;

use hotcell_domain::{ImageRef, Policy};
use hotcell_engine::Engine;
use hotcell_runtime::probe;
use hotcell_testkit::conformance::{Reopen, Subject, Traits};

use crate::support;

hotcell_testkit::conformance_engine_tests!(subject);

async fn subject() -> Subject {
    let state = support::scratch();
    let images = support::image::busybox(state.path()).await;
    let home = state.path().join("home");
    let make =
        move || -> Arc<dyn Engine> { Arc::new(support::engine(&home).with_images(images.clone())) };
    let engine = make();
    let reopen: Reopen = Box::new(move || {
        let engine = make();
        Box::pin(async { engine })
    });
    Subject {
        engine,
        image: ImageRef::parse(support::image::NAME).expect("a reference"),
        policy: Policy {
            allow_root: true,
            ..Policy::default()
        },
        traits: Traits {
            root: rustix::process::geteuid().is_root() || probe::subordinate_ids().is_ok(),
            ..Traits::ALL
        },
        reopen: Some(reopen),
        keep: Box::new(state),
    }
}
