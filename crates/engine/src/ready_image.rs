//! An image from which a container can be created right now.

use std::any::Any;
use std::fmt;

use hotcell_domain::{Admitted, ContainerSpec, ImageRef};

use crate::{EngineError, Progress};

/// What to do if the engine does not have an image.
#[derive(Debug, Clone, Copy)]
pub enum Pull<'a> {
    /// Pull it from its registry, and report the progress.
    IfMissing(&'a Progress),
    /// Ask no registry, change nothing, and return [`EngineError::NoImage`].
    Never,
}

/// An image that an engine has, with what that engine needs to create a container from it.
///
/// Only the engine that returned it from [`crate::Engine::fetch_image`] can use it, and only
/// for a spec that names the same image: policy admitted that one and no other. The embedded
/// engine removes no layer while one lives; in Docker and Podman it counts as a use.
pub struct ReadyImage {
    admitted: ImageRef,
    id: Option<String>,
    payload: Box<dyn Any + Send + Sync>,
}

impl ReadyImage {
    /// The image of `spec`. `id` is the engine's own id of it, which does not change when tags
    /// move; `None` if the engine or the image has none.
    pub fn new(
        spec: &Admitted<ContainerSpec>,
        id: Option<String>,
        payload: impl Any + Send + Sync,
    ) -> Self {
        Self {
            admitted: spec.value().image.clone(),
            id,
            payload: Box::new(payload),
        }
    }

    /// The engine's own id of the image, as in [`crate::Container::image_id`].
    pub fn id(&self) -> Option<&str> {
        self.id.as_deref()
    }

    /// The engine's payload, if it is for a container of this spec.
    pub fn payload<T: Any>(&self, spec: &Admitted<ContainerSpec>) -> Result<&T, EngineError> {
        let payload = self.payload.downcast_ref();
        let is_of_spec = self.admitted == spec.value().image;
        payload.filter(|_| is_of_spec).ok_or_else(|| {
            let step = EngineError::engine("use the image");
            step("it was fetched by another engine or for another container")
        })
    }
}

impl fmt::Debug for ReadyImage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadyImage")
            .field("admitted", &self.admitted)
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use hotcell_domain::Policy;

    use super::*;

    fn spec(image: &str) -> Admitted<ContainerSpec> {
        let image = ImageRef::parse(image).expect("a reference");
        let spec = Policy::default().admit(ContainerSpec::new(image));
        spec.expect("it is admitted")
    }

    #[test]
    fn an_image_serves_the_spec_and_the_engine_that_it_was_fetched_for() {
        let image = ReadyImage::new(&spec("a"), Some("sha256:1".to_owned()), 7_u32);
        assert_eq!(image.payload::<u32>(&spec("a")).expect("its own"), &7);
        assert!(image.payload::<u32>(&spec("b")).is_err());
        assert!(image.payload::<String>(&spec("a")).is_err());
    }
}
