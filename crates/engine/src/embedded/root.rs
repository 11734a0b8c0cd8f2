//! The root filesystem of a container.

use std::collections::BTreeSet;
use std::io;

use hotcell_domain::{Admitted, ContainerSpec, Digest, ImageRef};
use hotcell_image::{GcHold, Image, Images};
use hotcell_runtime::Root;

use super::home::Home;
use crate::EngineError;

/// A root filesystem that does not change while this is held, or while a record names its image.
pub(super) struct ContainerRoot {
    pub(super) root: Root,
    /// The OCI image, if it is one.
    pub(super) image: Option<Image>,
    _hold: Option<GcHold>,
}

impl ContainerRoot {
    /// The image's digest, which stays the same while its tag moves.
    pub(super) fn id(&self) -> Option<String> {
        let image = self.image.as_ref();
        image.map(|image| image.digest.to_string())
    }
}

/// Finds the root filesystem for a container.
pub(super) fn find(
    images: Option<&Images>,
    spec: &Admitted<ContainerSpec>,
) -> Result<ContainerRoot, EngineError> {
    let plain = |root| ContainerRoot {
        root,
        image: None,
        _hold: None,
    };
    match &spec.value().image {
        ImageRef::Host => Ok(plain(Root::Host)),
        ImageRef::Rootfs(path) => Ok(plain(Root::Overlay {
            lowers: vec![path.clone()],
            scratch: None,
        })),
        ImageRef::Oci(reference) => {
            let (Some(images), Some(source)) = (images, spec.image()) else {
                return Err(EngineError::Unsupported {
                    what: format!("image {reference}"),
                });
            };
            let step = "find the image";
            let hold = images.hold().map_err(EngineError::engine(step))?;
            let image = images.find(&source).ok_or_else(|| EngineError::NoImage {
                image: reference.to_string(),
            })?;
            Ok(ContainerRoot {
                root: layers(images, &image),
                image: Some(image),
                _hold: Some(hold),
            })
        }
    }
}

fn layers(images: &Images, image: &Image) -> Root {
    let names = image.layers.iter().rev();
    let names = names.map(|layer| hotcell_image::layer_name(layer).to_owned());
    Root::Layers {
        dir: images.layers_dir(),
        names: names.collect(),
        passwd: image.accounts.passwd.clone(),
        group: image.accounts.group.clone(),
    }
}

/// The manifests of the images that containers use.
pub(super) fn images_in_use(home: &Home) -> io::Result<BTreeSet<Digest>> {
    let mut manifests = BTreeSet::new();
    for id in home.ids().map_err(io::Error::other)? {
        match home.read(&id) {
            Ok(record) => manifests.extend(record.and_then(|record| record.image())),
            // It was removed meanwhile.
            Err(EngineError::NotFound { .. }) => {}
            Err(error) => return Err(io::Error::other(error)),
        }
    }
    Ok(manifests)
}
