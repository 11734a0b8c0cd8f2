//! Podman passes the suite that every engine must pass.

use hotcell_engine::docker::Flavor;
use hotcell_testkit::conformance::{Subject, Traits};

use crate::support;

hotcell_testkit::conformance_engine_tests!(subject);

async fn subject() -> Option<Subject> {
    let traits = Traits {
        cgroup_namespace: false,
        user_namespace: false,
        ..Traits::ALL
    };
    support::engines::subject(Flavor::Podman, None, traits)
}
