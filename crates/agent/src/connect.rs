//! The bridge that engines without a socket of their own run inside the container, once
//! per connection: stdin and stdout on one side, the agent's socket on the other.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::mpsc;
use std::thread;

/// Bytes moved at once.
const BUFFER_BYTES: usize = 64 << 10;

/// Copies both ways until either side ends.
pub fn run(path: &Path) -> io::Result<()> {
    let socket = UnixStream::connect(path)?;
    let stdin = File::from(rustix::stdio::stdin().try_clone_to_owned()?);
    let stdout = File::from(rustix::stdio::stdout().try_clone_to_owned()?);
    let (ended, first_end) = mpsc::sync_channel(2);
    let (inward, also_ended) = (socket.try_clone()?, ended.clone());
    thread::spawn(move || also_ended.send(copy(stdin, inward)));
    let outward = socket.try_clone()?;
    thread::spawn(move || ended.send(copy(outward, stdout)));
    let result = first_end.recv().unwrap_or(Ok(()));
    let _ = socket.shutdown(Shutdown::Both);
    result
}

fn copy(mut from: impl Read, mut to: impl Write) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(count) => to.write_all(&buffer[..count])?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
