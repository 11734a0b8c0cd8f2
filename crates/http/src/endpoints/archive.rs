//! `GET` and `PUT /v1/containers/{id}/archive`: a directory as a tar, compressed or not.

use axum::Json;
use axum::body::Body;
use axum::extract::{Extension, Request, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use hotcell_domain::Caller;
use hotcell_service::{FilePath, FileReader, FileWriter};
use http::Method;
use http::header::{CONTENT_DISPOSITION, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use serde_json::json;

use super::Endpoints;
use super::gzip::{Gunzip, Gzip};
use super::target::{self, Query};
use super::upload::Upload;
use crate::error::HttpError;

/// The default path.
const WORKSPACE: &[u8] = b".";

/// Sends a tar of `path`.
pub(super) async fn export(
    State(endpoints): State<Endpoints>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, HttpError> {
    let container = target::container(request.uri())?;
    let query = Query::parse(request.uri(), &["path", "gzip", "include", "exclude"])?;
    let path = query
        .path("path")?
        .map_or_else(|| FilePath::parse(WORKSPACE), Ok)?;
    let is_packed = query.flag("gzip", true)?;
    let (include, exclude) = (query.texts("include")?, query.texts("exclude")?);
    let reader = endpoints
        .service
        .file_export(&caller, &container, &path, include, exclude);
    let reader = reader.await?;
    let (mime_type, name) = if is_packed {
        ("application/gzip", "workspace.tar.gz")
    } else {
        ("application/x-tar", "workspace.tar")
    };
    let body = if request.method() == Method::HEAD {
        reader.close();
        Body::empty()
    } else if is_packed {
        packed(reader)
    } else {
        plain(reader)
    };
    let headers = [
        (CONTENT_TYPE, mime_type.to_owned()),
        (X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned()),
        (
            CONTENT_DISPOSITION,
            format!("attachment; filename=\"{name}\""),
        ),
    ];
    Ok((headers, body).into_response())
}

/// A tar that cannot be completed aborts the response, so that it does not look complete.
fn plain(reader: FileReader) -> Body {
    let pieces = stream::try_unfold(reader, |mut reader| async move {
        let piece = reader.next().await.map_err(std::io::Error::other)?;
        std::io::Result::Ok(piece.map(|piece| (piece, reader)))
    });
    Body::from_stream(pieces)
}

fn packed(reader: FileReader) -> Body {
    let state = Some((reader, Gzip::new()));
    let pieces = stream::try_unfold(state, |state| async move {
        let Some((mut reader, gzip)) = state else {
            return std::io::Result::Ok(None);
        };
        match reader.next().await.map_err(std::io::Error::other)? {
            Some(piece) => {
                let (gzip, made) = gzip.push(piece).await?;
                Ok(Some((made, Some((reader, gzip)))))
            }
            None => Ok(Some((gzip.finish().await?, None))),
        }
    });
    Body::from_stream(pieces)
}

/// Unpacks a tar, compressed or not, below `dest`.
pub(super) async fn import(
    State(endpoints): State<Endpoints>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, HttpError> {
    let (parts, body) = request.into_parts();
    let mut upload = Upload::new(&parts, body, endpoints.upload_pace);
    let imported = async {
        let container = target::container(&parts.uri)?;
        // The same URL reads and writes a directory, so `path` is accepted too.
        let query = Query::parse(&parts.uri, &["dest", "path"])?;
        let dest = query
            .path("dest")?
            .map_or_else(|| query.path("path"), |dest| Ok(Some(dest)))?;
        let dest = dest.map_or_else(|| FilePath::parse(WORKSPACE), Ok)?;
        let writer = endpoints
            .service
            .file_import(&caller, &container, &dest)
            .await?;
        fill(writer, &mut upload).await
    };
    match imported.await {
        Ok((entries, bytes)) => {
            Ok(Json(json!({ "entries": entries, "bytes": bytes })).into_response())
        }
        Err(refusal) => Err(upload.refuse(refusal).await),
    }
}

async fn fill(
    mut writer: FileWriter<(u64, u64)>,
    upload: &mut Upload,
) -> Result<(u64, u64), HttpError> {
    let mut gunzip = Gunzip::new();
    while let Some(piece) = upload.next().await? {
        let mut next = Some(piece);
        while let Some(piece) = next {
            let made;
            (gunzip, made, next) = gunzip.push(piece).await.map_err(|_| broken())?;
            put(&mut writer, made).await?;
        }
    }
    put(&mut writer, gunzip.finish().await.map_err(|_| broken())?).await?;
    Ok(writer.finish().await?)
}

async fn put(writer: &mut FileWriter<(u64, u64)>, data: Bytes) -> Result<(), HttpError> {
    if !data.is_empty() {
        writer.write(data).await?;
    }
    Ok(())
}

fn broken() -> HttpError {
    HttpError::invalid("the gzip is damaged or cut short")
}
