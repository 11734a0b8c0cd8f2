//! Podman passes the suite that every engine must pass.

mod support;

use hotcell_engine::conformance::{Subject, Traits};
use hotcell_engine::docker::Flavor;

hotcell_engine::conformance_tests!(subject);

async fn subject() -> Option<Subject> {
    let traits = Traits {
        cgroup_namespace: false,
        user_namespace: false,
        ..Traits::ALL
    };
    support::engines::subject(Flavor::Podman, None, traits)
}
