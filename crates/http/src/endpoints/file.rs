//! `GET`, `HEAD` and `PUT /v1/containers/{id}/files/{path}`: one file of any size.

use axum::Json;
use axum::body::Body;
use axum::extract::{Extension, Request, State};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use hotcell_domain::{Caller, ContainerRef};
use hotcell_mcp::workspace_path;
use hotcell_service::{FileInfo, FilePath, FileReader, FileWriter, WriteOptions};
use http::header::{
    ACCEPT_RANGES, CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG,
    X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use percent_encoding::{NON_ALPHANUMERIC, percent_encode};
use serde_json::json;

use super::conditions::{self, CacheMatch};
use super::range::{ByteSpan, RequestedRange};
use super::upload::Upload;
use super::{Endpoints, error, target};
use crate::error::HttpError;

/// Sends a file, or the requested range.
pub(super) async fn read(
    State(endpoints): State<Endpoints>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, HttpError> {
    let container = target::container(request.uri())?;
    let path = target::file(request.uri())?;
    let source = FileSource {
        endpoints: &endpoints,
        caller: &caller,
        container,
        path,
    };
    let headers = request.headers();
    let mut wanted = RequestedRange::parse(headers);
    let (mut info, mut reader) = source.open(wanted).await?;
    match conditions::known(headers, &info.etag) {
        CacheMatch::Same => {
            reader.close();
            return Ok(not_modified(&info));
        }
        CacheMatch::Other => {
            reader.close();
            return Err(has_changed());
        }
        CacheMatch::New => {}
    }
    if wanted != RequestedRange::All && !conditions::wants_range(headers, &info.etag) {
        reader.close();
        wanted = RequestedRange::All;
        (info, reader) = source.open(wanted).await?;
    }
    let Some(part) = wanted.of(info.size) else {
        reader.close();
        return Err(out_of_range(info.size));
    };
    let body = if request.method() == Method::HEAD {
        reader.close();
        Body::empty()
    } else {
        body(reader, part.length)
    };
    Ok(send(&source.path, &info, wanted, part, body))
}

/// A file to be read.
struct FileSource<'a> {
    endpoints: &'a Endpoints,
    caller: &'a Caller,
    container: ContainerRef,
    path: FilePath,
}

impl FileSource<'_> {
    /// Opens it at the start of the requested range.
    async fn open(&self, wanted: RequestedRange) -> Result<(FileInfo, FileReader), HttpError> {
        let (offset, limit) = match wanted {
            RequestedRange::All => (0, None),
            RequestedRange::From(first, last) => (first, last.map(|last| last - first + 1)),
            RequestedRange::Last(count) => {
                let (info, reader) = self.open_at(0, Some(1)).await?;
                reader.close();
                (info.size.saturating_sub(count), None)
            }
        };
        self.open_at(offset, limit).await
    }

    async fn open_at(
        &self,
        offset: u64,
        limit: Option<u64>,
    ) -> Result<(FileInfo, FileReader), HttpError> {
        let service = &self.endpoints.service;
        let opened = service.file_read(self.caller, &self.container, &self.path, offset, limit);
        Ok(opened.await?)
    }
}

fn send(
    path: &FilePath,
    info: &FileInfo,
    wanted: RequestedRange,
    part: ByteSpan,
    body: Body,
) -> Response {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    describe(headers, path, info);
    headers.insert(CONTENT_LENGTH, part.length.into());
    if wanted != RequestedRange::All {
        let last = part.offset + part.length - 1;
        insert(
            headers,
            CONTENT_RANGE,
            &format!("bytes {}-{last}/{}", part.offset, info.size),
        );
        *response.status_mut() = StatusCode::PARTIAL_CONTENT;
    }
    response
}

/// Exactly `length` bytes, or an error that aborts the response: a file may shrink or grow while it
/// is read.
fn body(reader: FileReader, length: u64) -> Body {
    let pieces = stream::try_unfold((reader, length), |(mut reader, left)| async move {
        if left == 0 {
            return Ok(None);
        }
        let piece = reader.next().await.map_err(std::io::Error::other)?;
        let Some(mut piece) = piece else {
            return Err(std::io::Error::from(std::io::ErrorKind::UnexpectedEof));
        };
        piece.truncate(usize::try_from(left).unwrap_or(usize::MAX));
        let left = left - piece.len() as u64;
        Ok(Some((piece, (reader, left))))
    });
    Body::from_stream(pieces)
}

/// Headers that keep a container's files from running in a browser under our origin.
fn describe(headers: &mut HeaderMap, path: &FilePath, info: &FileInfo) {
    if let Some(etag) = conditions::header(&info.etag) {
        headers.insert(ETAG, etag);
    }
    headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    headers.insert(
        CONTENT_TYPE,
        HeaderValue::from_static("application/octet-stream"),
    );
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    insert(headers, CONTENT_DISPOSITION, &disposition(path.as_bytes()));
}

fn insert(headers: &mut HeaderMap, name: http::HeaderName, value: &str) {
    headers.insert(
        name,
        HeaderValue::try_from(value).expect("it is printable ASCII"),
    );
}

/// The `Content-Disposition` header, with the file name.
fn disposition(path: &[u8]) -> String {
    let name = path
        .rsplit(|byte| *byte == b'/')
        .find(|name| !name.is_empty());
    let name = String::from_utf8_lossy(name.unwrap_or(b"file"));
    let encoded = percent_encode(name.as_bytes(), NON_ALPHANUMERIC);
    format!("attachment; filename*=UTF-8''{encoded}")
}

fn not_modified(info: &FileInfo) -> Response {
    let etag = conditions::header(&info.etag).map(|etag| [(ETAG, etag)]);
    (StatusCode::NOT_MODIFIED, etag, ()).into_response()
}

fn has_changed() -> HttpError {
    let hint = "look at how it is now, then decide again";
    HttpError::new(
        StatusCode::PRECONDITION_FAILED,
        "conflict",
        "the file has another etag",
        hint,
    )
}

fn out_of_range(size: u64) -> HttpError {
    let status = StatusCode::RANGE_NOT_SATISFIABLE;
    let message = format!("the file has {size} bytes, and the range is behind them");
    let value = HeaderValue::try_from(format!("bytes */{size}")).expect("it is printable ASCII");
    HttpError::new(status, "invalid_argument", &message, "ask for less")
        .with_header(CONTENT_RANGE, value)
}

/// Writes a file. It appears once the body is complete; if the body breaks off, the old file stays.
pub(super) async fn write(
    State(endpoints): State<Endpoints>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, HttpError> {
    let (parts, body) = request.into_parts();
    let mut upload = Upload::new(&parts, body, endpoints.upload_pace);
    let written = async {
        let container = target::container(&parts.uri)?;
        let path = target::file(&parts.uri)?;
        let precondition = conditions::precondition(&parts.headers)?;
        let options = WriteOptions {
            precondition,
            create_parents: true,
            ..WriteOptions::default()
        };
        let writer = endpoints
            .service
            .file_writer(&caller, &container, &path, options);
        fill(writer.await.map_err(error::of_conditional)?, &mut upload).await
    };
    match written.await {
        Ok(info) => Ok(described(&info)),
        Err(refusal) => Err(upload.refuse(refusal).await),
    }
}

async fn fill(
    mut writer: FileWriter<FileInfo>,
    upload: &mut Upload,
) -> Result<FileInfo, HttpError> {
    while let Some(piece) = upload.next().await? {
        writer.write(piece).await.map_err(error::of_conditional)?;
    }
    writer.finish().await.map_err(error::of_conditional)
}

fn described(info: &FileInfo) -> Response {
    let path = workspace_path(&info.path);
    let body = json!({ "path": path, "etag": info.etag, "size": info.size });
    let etag = conditions::header(&info.etag).map(|etag| [(ETAG, etag)]);
    (etag, Json(body)).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_saved_under_its_own_name_whatever_that_is() {
        assert_eq!(
            disposition(b"a/b c.txt"),
            "attachment; filename*=UTF-8''b%20c%2Etxt"
        );
        assert_eq!(
            disposition(b"x\"\r\ny"),
            "attachment; filename*=UTF-8''x%22%0D%0Ay"
        );
        assert_eq!(disposition(b"/"), "attachment; filename*=UTF-8''file");
    }
}
