//! HTTP errors of the endpoints; the sentences are those of the tools.

use hotcell_mcp::{Code, ToolError};
use hotcell_service::ServiceError;
use http::StatusCode;

use crate::error::HttpError;

impl From<ToolError> for HttpError {
    fn from(error: ToolError) -> Self {
        Self::of_body(status(error.code()), error.to_json())
    }
}

impl From<ServiceError> for HttpError {
    fn from(error: ServiceError) -> Self {
        ToolError::from(error).into()
    }
}

/// The error of a conditional write.
pub(super) fn of_conditional(error: ServiceError) -> HttpError {
    let error = ToolError::from(error);
    if matches!(error.code(), Code::Conflict | Code::AlreadyExists) {
        return HttpError::of_body(StatusCode::PRECONDITION_FAILED, error.to_json());
    }
    error.into()
}

fn status(code: Code) -> StatusCode {
    match code {
        Code::InvalidArgument => StatusCode::BAD_REQUEST,
        Code::NotFound => StatusCode::NOT_FOUND,
        Code::AlreadyExists | Code::Conflict => StatusCode::CONFLICT,
        Code::Denied => StatusCode::FORBIDDEN,
        Code::ResourceExhausted => StatusCode::INSUFFICIENT_STORAGE,
        Code::DeadlineExceeded => StatusCode::GATEWAY_TIMEOUT,
        Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        // Nobody reads the answer to a cancelled request.
        Code::Cancelled | Code::Internal => StatusCode::INTERNAL_SERVER_ERROR,
    }
}
