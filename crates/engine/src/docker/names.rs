//! Names of our containers and volumes in the engine, and the labels by which they are found.

use std::collections::HashMap;

use hotcell_domain::ContainerId;

/// The id of the container that an object belongs to.
const CONTAINER_LABEL: &str = "io.hotcell.container";

/// The scope of the server that an object belongs to.
pub(super) const SCOPE_LABEL: &str = "io.hotcell.scope";

/// The version of Hotcell that created an object.
const VERSION_LABEL: &str = "io.hotcell.version";

/// The purpose of a container or volume.
const ROLE_LABEL: &str = "io.hotcell.role";

/// Whether a container ends with its owner.
pub(super) const LIFETIME_LABEL: &str = "io.hotcell.lifetime";

/// The digest of a container's image, or its id if it came from no registry.
pub(super) const DIGEST_LABEL: &str = "io.hotcell.image.digest";

/// The engine's id of a container's image.
pub(super) const IMAGE_LABEL: &str = "io.hotcell.image.id";

/// The spec of a container, see [`crate::stored_spec`].
pub(super) const SPEC_LABEL: &str = "io.hotcell.spec";

/// When an object was created, in Unix seconds by our clock.
pub(super) const MADE_LABEL: &str = "io.hotcell.made";

/// The role of the volume with the agent, and of the container that fills it.
const AGENT_ROLE: &str = "agent";

/// The role of a container for a caller, and of its volume.
const CONTAINER_ROLE: &str = "container";

/// [`LIFETIME_LABEL`] of a container that ends with its owner, and of any other.
pub(super) const WITH_OWNER: &str = "owner";
pub(super) const UNTIL_DESTROYED: &str = "destroyed";

/// Labels of one object. A container also inherits those of its image, which can be anything, so
/// every label that we read is set on every container.
pub(super) type Labels = HashMap<String, String>;

/// The engine's name of a container, and of its volume.
pub(super) fn of(id: &ContainerId) -> String {
    format!("hotcell-{id}")
}

/// The engine's name of the container that fills the agent's volume for a container.
pub(super) fn of_filler(id: &ContainerId) -> String {
    format!("hotcell-{id}-agent")
}

/// The labels of everything we create.
fn common(scope: &str) -> Labels {
    let made = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    [
        (SCOPE_LABEL, scope.to_owned()),
        (VERSION_LABEL, env!("CARGO_PKG_VERSION").to_owned()),
        (MADE_LABEL, made.to_string()),
    ]
    .map(|(key, value)| (key.to_owned(), value))
    .into()
}

/// The labels of a container and its volume.
pub(super) fn labels(scope: &str, id: &ContainerId) -> Labels {
    let mut labels = common(scope);
    labels.insert(CONTAINER_LABEL.to_owned(), id.to_string());
    labels.insert(ROLE_LABEL.to_owned(), CONTAINER_ROLE.to_owned());
    labels
}

/// The labels of the agent's volume, and of a container that fills it.
pub(super) fn of_agent(scope: &str) -> Labels {
    let mut labels = common(scope);
    labels.insert(ROLE_LABEL.to_owned(), AGENT_ROLE.to_owned());
    labels.insert(CONTAINER_LABEL.to_owned(), String::new());
    labels
}

/// A filter for our containers and their volumes. It may also find containers that fill a volume,
/// see [`owner`].
pub(super) fn filter_containers(scope: &str) -> HashMap<String, Vec<String>> {
    filter(scope, CONTAINER_LABEL.to_owned())
}

/// A filter for volumes with the agent, and for the containers that fill them.
pub(super) fn filter_agents(scope: &str) -> HashMap<String, Vec<String>> {
    filter(scope, format!("{ROLE_LABEL}={AGENT_ROLE}"))
}

fn filter(scope: &str, label: String) -> HashMap<String, Vec<String>> {
    let labels = vec![format!("{SCOPE_LABEL}={scope}"), label];
    HashMap::from([("label".to_owned(), labels)])
}

/// The id of the container that these labels belong to, if it is ours.
pub(super) fn owner(scope: &str, labels: Option<&Labels>) -> Option<ContainerId> {
    let labels = labels?;
    if labels.get(SCOPE_LABEL)? != scope {
        return None;
    }
    ContainerId::parse(labels.get(CONTAINER_LABEL)?).ok()
}

/// The age of an object by our clock; `None` if its label is missing.
pub(super) fn age_seconds(labels: &Labels) -> Option<u64> {
    let made: u64 = labels.get(MADE_LABEL)?.parse().ok()?;
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    Some(now.ok()?.as_secs().saturating_sub(made))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_own_scope_is_ours() {
        let id = ContainerId::from_parts(1, [7; 10]);
        let labels = labels("here", &id);
        assert_eq!(owner("here", Some(&labels)), Some(id));
        assert_eq!(owner("there", Some(&labels)), None);
        assert_eq!(owner("here", None), None);
    }

    #[test]
    fn a_label_that_is_no_id_of_ours_names_nobody() {
        let mut labels = common("here");
        labels.insert(CONTAINER_LABEL.to_owned(), "../../etc".to_owned());
        assert_eq!(owner("here", Some(&labels)), None);
    }
}
