//! Shows what came of an input. All of it is the word of a container, so it is filtered before a
//! terminal sees it.

use anyhow::{Context, Result};

use super::session::{Ran, Session, Shown};
use crate::artifacts::{ArtifactDirectory, FILE_BYTES_MAX, FILES_MAX};
use crate::terminal::{Screen, plain};

/// Shows output, values and where files were saved.
pub(super) async fn show(ran: Ran, session: &Session, directory: &ArtifactDirectory) -> Result<()> {
    let mut screen = Screen::new(false);
    let mut stdout = ran.stdout.clone();
    for value in ran.displayed.iter().chain(&ran.result) {
        end_line(&mut stdout);
        stdout.push_str(value.shown());
    }
    // Whatever comes next begins a line of its own.
    let mut stderr = ran.stderr.clone();
    end_line(&mut stdout);
    end_line(&mut stderr);
    let shown = async {
        screen.write(false, stdout.as_bytes()).await?;
        screen.write(true, stderr.as_bytes()).await?;
        screen.finish().await
    };
    shown.await.context("show the output")?;
    for line in notes(&ran, session) {
        eprintln!("hotcell: {}", plain(&line));
    }
    save(&ran, session, directory).await;
    Ok(())
}

/// How it ended, if that is not as usual.
fn notes(ran: &Ran, session: &Session) -> Vec<String> {
    let mut notes: Vec<String> = ran.note.iter().cloned().collect();
    match (ran.status.as_str(), &ran.reason) {
        ("succeeded", _) => {}
        (_, Some(reason)) => notes.push(reason.clone()),
        // Python has shown a traceback.
        ("failed", None) if session.keeps_variables() => {}
        (status, None) => {
            let code = ran.exit_code.map(|code| format!("exit code {code}"));
            let code = code.or_else(|| ran.signal.map(|signal| format!("signal {signal}")));
            notes.push(code.unwrap_or_else(|| status.replace('_', " ")));
        }
    }
    notes
}

async fn save(ran: &Ran, session: &Session, directory: &ArtifactDirectory) {
    for artifact in ran.artifacts.iter().take(FILES_MAX) {
        let saved = async {
            anyhow::ensure!(
                artifact.size <= FILE_BYTES_MAX,
                "it has {} bytes; {FILE_BYTES_MAX} are saved at most",
                artifact.size
            );
            Ok(session.save(artifact, directory).await?.complete())
        };
        let told = match saved.await {
            Ok(path) => format!("saved {} ({})", path.display(), artifact.mime_type),
            Err(error) => format!("{} is not saved: {error:#}", artifact.path),
        };
        eprintln!("hotcell: {}", plain(&told));
    }
}

impl Shown {
    fn shown(&self) -> &str {
        self.data.as_deref().unwrap_or(&self.text)
    }
}

fn end_line(text: &mut String) {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
}
