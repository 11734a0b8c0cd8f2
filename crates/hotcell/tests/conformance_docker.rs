//! Docker passes the suite that every engine must pass.

mod support;

use hotcell_engine::conformance::{Subject, Traits};
use hotcell_engine::docker::Flavor;

hotcell_engine::conformance_tests!(subject);

async fn subject() -> Option<Subject> {
    let traits = Traits {
        sealed: true,
        linux: true,
        orphans: true,
        cgroup_namespace: true,
        limits: true,
        root: true,
        user_namespace: false,
    };
    support::engines::subject(Flavor::Docker, None, traits)
}
