//! A container's name server: passes each query to the guest.

use std::sync::Arc;

use hotcell_egress::{Guest, QUERY_BYTES_MAX};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::stream::ClosingStream;

/// Answers the queries of one TCP connection, each behind its length.
pub(super) async fn answer_stream(guest: &Arc<Guest>, mut stream: ClosingStream) {
    let mut query = [0; QUERY_BYTES_MAX];
    while let Ok(length) = stream.read_u16().await {
        let Some(query) = query.get_mut(..length.into()) else {
            return;
        };
        if stream.read_exact(query).await.is_err() {
            return;
        }
        let Some(answer) = guest.answer(query).await else {
            return;
        };
        let Ok(length) = u16::try_from(answer.len()) else {
            return;
        };
        let mut reply = length.to_be_bytes().to_vec();
        reply.extend_from_slice(&answer);
        if stream.write_all(&reply).await.is_err() {
            return;
        }
    }
}
