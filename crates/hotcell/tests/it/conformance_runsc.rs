//! Docker with gVisor passes the suite that every engine must pass.

use hotcell_engine::docker::Flavor;
use hotcell_testkit::conformance::{Subject, Traits};

use crate::support;

hotcell_testkit::conformance_tests!(subject);

async fn subject() -> Option<Subject> {
    let traits = Traits {
        sealed: true,
        root: true,
        ..Traits::default()
    };
    support::engines::subject(Flavor::Docker, Some("runsc"), traits)
}
