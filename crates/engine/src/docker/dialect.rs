//! Responses with values that Docker's API does not have. Podman has states of its own: a
//! container that has exited is `stopped` until its monitor has cleaned up.

use bollard::errors::Error as ApiError;
use bollard::models::{ContainerInspectResponse, ContainerStateStatusEnum, ContainerSummary};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// A response about one container.
pub(super) fn inspected(
    answer: Result<ContainerInspectResponse, ApiError>,
) -> Result<ContainerInspectResponse, ApiError> {
    understood(answer, |answer| {
        if let Some(status) = answer.pointer_mut("/State/Status") {
            translate(status);
        }
    })
}

/// A response about many containers.
pub(super) fn listed(
    answer: Result<Vec<ContainerSummary>, ApiError>,
) -> Result<Vec<ContainerSummary>, ApiError> {
    understood(answer, |answer| {
        let containers = answer.as_array_mut().into_iter().flatten();
        containers
            .filter_map(|container| container.get_mut("State"))
            .for_each(translate);
    })
}

/// Translates a response that could not be parsed, and parses it again.
fn understood<T: DeserializeOwned>(
    answer: Result<T, ApiError>,
    translate: impl FnOnce(&mut Value),
) -> Result<T, ApiError> {
    let Err(ApiError::JsonDataError { contents, .. }) = &answer else {
        return answer;
    };
    let Ok(mut value) = serde_json::from_str(contents) else {
        return answer;
    };
    translate(&mut value);
    serde_json::from_value(value).or(answer)
}

/// Translates a state into one of Docker's; an unknown one becomes the empty state.
fn translate(state: &mut Value) {
    if serde_json::from_value::<ContainerStateStatusEnum>(state.clone()).is_ok() {
        return;
    }
    let word = match state.as_str() {
        Some("stopped") => "exited",
        Some("configured" | "initialized") => "created",
        Some(_) | None => "",
    };
    *state = word.into();
}

#[cfg(test)]
mod tests {
    use bollard::models::ContainerSummaryStateEnum;
    use serde_json::json;

    use super::*;

    /// How the library parses a response.
    fn answer<T: DeserializeOwned>(body: &Value) -> Result<T, ApiError> {
        serde_json::from_value(body.clone()).map_err(|error| ApiError::JsonDataError {
            message: error.to_string(),
            contents: body.to_string(),
            column: 0,
        })
    }

    fn status_of(word: &str) -> Option<ContainerStateStatusEnum> {
        let body = json!({"Id": "1", "State": {"Status": word, "ExitCode": 0}});
        let found = inspected(answer(&body)).expect("it is understood");
        found.state.and_then(|state| state.status)
    }

    #[test]
    fn states_that_docker_does_not_have_are_translated() {
        use ContainerStateStatusEnum as Status;
        assert_eq!(status_of("stopped"), Some(Status::EXITED));
        assert_eq!(status_of("initialized"), Some(Status::CREATED));
        assert_eq!(status_of("running"), Some(Status::RUNNING));
        assert_eq!(status_of("bored"), Some(Status::EMPTY));
    }

    #[test]
    fn one_container_in_such_a_state_does_not_spoil_a_list() {
        use ContainerSummaryStateEnum as State;
        let body = json!([{"Id": "1", "State": "running"}, {"Id": "2", "State": "stopped"}]);
        let found = listed(answer(&body)).expect("it is understood");
        let states: Vec<_> = found.iter().map(|container| container.state).collect();
        assert_eq!(states, [Some(State::RUNNING), Some(State::EXITED)]);
    }

    #[test]
    fn what_is_wrong_in_another_way_stays_an_error() {
        let body = json!({"Id": 7});
        assert!(inspected(answer(&body)).is_err());
    }
}
