//! Docker with gVisor passes the suite that every engine must pass.

mod support;

use hotcell_engine::conformance::{Subject, Traits};
use hotcell_engine::docker::Flavor;

hotcell_engine::conformance_tests!(subject);

async fn subject() -> Option<Subject> {
    let traits = Traits {
        sealed: true,
        root: true,
        ..Traits::default()
    };
    support::engines::subject(Flavor::Docker, Some("runsc"), traits)
}
