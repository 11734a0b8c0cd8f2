//! The list of engines.

use crate::docker::{self, Flavor};
use crate::{EngineKind, embedded};

/// Every engine, in the order in which `auto` tries them. A new one is a directory beside this
/// file, a row here, and a module in `crates/hotcell/tests/it` that runs the conformance suite
/// on it.
pub static ENGINES: &[&dyn EngineKind] = &[
    &embedded::EmbeddedKind,
    &docker::DockerKind(Flavor::Docker),
    &docker::DockerKind(Flavor::Podman),
];

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use hotcell_domain::ImageRef;

    use super::*;

    #[test]
    fn each_engine_has_a_name_of_its_own_and_an_image_that_it_can_use() {
        let names: HashSet<_> = ENGINES.iter().map(|kind| kind.name()).collect();
        assert_eq!(names.len(), ENGINES.len());
        assert!(!names.contains("auto"), "that is none of them");
        for kind in ENGINES {
            let image = ImageRef::parse(kind.default_image());
            assert!(image.is_ok(), "{}", kind.name());
        }
    }
}
