//! Our stdout and stderr, as the destination of a container's output.

use std::io::{self, IsTerminal};

use tokio::io::{AsyncWrite, AsyncWriteExt};

use super::filter::TerminalFilter;

/// Our stdout and stderr. Output to a terminal is filtered.
#[derive(Debug, Default)]
pub(crate) struct Screen {
    stdout: Option<TerminalFilter>,
    stderr: Option<TerminalFilter>,
}

impl Screen {
    /// Filtered unless `raw`.
    pub(crate) fn new(raw: bool) -> Self {
        let filter = |is_terminal: bool| (is_terminal && !raw).then(TerminalFilter::default);
        Self {
            stdout: filter(io::stdout().is_terminal()),
            stderr: filter(io::stderr().is_terminal()),
        }
    }

    pub(crate) async fn write(&mut self, is_stderr: bool, data: &[u8]) -> io::Result<()> {
        let filter = if is_stderr {
            &mut self.stderr
        } else {
            &mut self.stdout
        };
        match filter {
            Some(filter) => show(is_stderr, &filter.filter(data)).await,
            None => show(is_stderr, data).await,
        }
    }

    /// Shows what was held back.
    pub(crate) async fn finish(&mut self) -> io::Result<()> {
        if let Some(filter) = &mut self.stdout {
            show(false, &filter.finish()).await?;
        }
        if let Some(filter) = &mut self.stderr {
            show(true, &filter.finish()).await?;
        }
        Ok(())
    }
}

async fn show(is_stderr: bool, data: &[u8]) -> io::Result<()> {
    if is_stderr {
        write(tokio::io::stderr(), data).await
    } else {
        write(tokio::io::stdout(), data).await
    }
}

/// Writes everything and flushes.
pub(crate) async fn write(mut to: impl AsyncWrite + Unpin, data: &[u8]) -> io::Result<()> {
    to.write_all(data).await?;
    to.flush().await
}
