//! Egress profiles that the operator gives to single principals and images.

use std::collections::{BTreeMap, HashMap};

use hotcell_domain::{ImageRef, Principal};
use hotcell_egress::{Policy, ProfileName};

use crate::ServiceError;

/// The profiles of single principals and images.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AssignedEgress {
    /// Those of a principal, which come before those of an image.
    pub principals: BTreeMap<Principal, PrincipalEgress>,
    /// The profile of containers of an image that name none.
    pub images: HashMap<ImageRef, ProfileName>,
}

/// The profiles of one principal.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PrincipalEgress {
    /// The profile of its containers that name none.
    pub default: Option<ProfileName>,
    /// The profiles that it may name; `None`: those of the server.
    pub granted: Option<Vec<ProfileName>>,
}

impl AssignedEgress {
    /// The profile of a container that names none; `None`: that of the server.
    pub(super) fn default_profile(
        &self,
        principal: &Principal,
        image: Option<&ImageRef>,
    ) -> Option<&ProfileName> {
        let own = self.principals.get(principal);
        let of_image = || self.images.get(image?);
        own.and_then(|own| own.default.as_ref()).or_else(of_image)
    }

    /// The profiles that a principal may name; `None`: those of the server.
    pub(super) fn granted(&self, principal: &Principal) -> Option<&[ProfileName]> {
        self.principals.get(principal)?.granted.as_deref()
    }

    /// Refuses profiles that do not exist.
    pub(super) fn check(&self, policy: &Policy) -> Result<(), ServiceError> {
        let is_known = |name: &ProfileName| name.is_none() || policy.profile(name).is_some();
        let of_principals = self.principals.values();
        let of_principals =
            of_principals.flat_map(|own| own.default.iter().chain(own.granted.iter().flatten()));
        let mut named = of_principals.chain(self.images.values());
        match named.find(|name| !is_known(name)) {
            None => Ok(()),
            Some(name) => Err(ServiceError::Invalid {
                reason: format!("there is no egress profile `{name}`"),
            }),
        }
    }
}
