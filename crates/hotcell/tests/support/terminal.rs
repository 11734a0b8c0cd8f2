//! A pseudo-terminal and its user.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{
    ControlModes, InputModes, LocalModes, OutputModes, Winsize, tcgetattr, tcsetwinsize,
};

use super::wait_until;

/// Survives Ctrl-C, prints how the program ended and keeps the terminal open until a line is typed, because the
/// kernel resets the terminal when the session leader ends.
const SHELL: &str = r#"trap : INT; "$@"; echo "ended with $?"; read line"#;

/// A pseudo-terminal.
pub(crate) struct Terminal {
    keyboard: File,
    programs_end: OwnedFd,
    shown: Arc<Mutex<Vec<u8>>>,
}

/// The modes of a terminal.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Modes {
    pub input: InputModes,
    pub output: OutputModes,
    pub control: ControlModes,
    pub local: LocalModes,
}

impl Terminal {
    pub(crate) fn new(rows: u16, cols: u16) -> Self {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let ours = openpt(flags).expect("a terminal");
        unlockpt(&ours).expect("it is ours");
        let programs_end = ioctl_tiocgptpeer(&ours, flags).expect("it has another end");
        let keyboard = File::from(ours);
        let screen = keyboard.try_clone().expect("a second handle");
        let terminal = Self {
            keyboard,
            programs_end,
            shown: collect(screen),
        };
        terminal.resize(rows, cols);
        terminal
    }

    /// Runs a command in a shell on this terminal.
    pub(crate) fn run(&self, command: &Command) -> Child {
        let end = || Stdio::from(self.programs_end.try_clone().expect("one more handle"));
        let mut shell = Command::new("setsid");
        shell.args(["--ctty", "sh", "-c", SHELL, "sh"]);
        shell.arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => shell.env(name, value),
                None => shell.env_remove(name),
            };
        }
        shell.stdin(end()).stdout(end()).stderr(end());
        shell.spawn().expect("a shell starts")
    }

    /// Resizes the terminal; the kernel sends SIGWINCH.
    pub(crate) fn resize(&self, rows: u16, cols: u16) {
        let size = Winsize {
            ws_row: rows,
            ws_col: cols,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&self.keyboard, size).expect("a terminal has a size");
    }

    pub(crate) fn modes(&self) -> Modes {
        let all = tcgetattr(&self.programs_end).expect("a terminal has modes");
        Modes {
            input: all.input_modes,
            output: all.output_modes,
            control: all.control_modes,
            local: all.local_modes,
        }
    }

    pub(crate) fn press(&self, keys: &str) {
        let mut keyboard = &self.keyboard;
        keyboard.write_all(keys.as_bytes()).expect("it takes keys");
    }

    /// Waits until the terminal shows these words.
    pub(crate) fn wait_for(&self, words: &str) {
        wait_until(words, || self.shown().contains(words));
    }

    /// Waits until the terminal has shown these words so many times.
    pub(crate) fn wait_for_times(&self, words: &str, times: usize) {
        wait_until(words, || self.shown().matches(words).count() >= times);
    }

    /// Presses Enter; returns its echo and the next line.
    pub(crate) fn answer(&self) -> String {
        let before = self.shown().len();
        self.press("\r");
        let mut answer = String::new();
        wait_until("Enter is answered", || {
            self.shown()[before..].clone_into(&mut answer);
            answer.matches("\r\n").count() >= 2
        });
        answer
    }

    pub(crate) fn shown(&self) -> String {
        let shown = self.shown.lock().expect("nobody fails with it");
        String::from_utf8_lossy(&shown).into_owned()
    }
}

/// Reads until no program has the terminal open.
fn collect(mut screen: File) -> Arc<Mutex<Vec<u8>>> {
    let shown = Arc::new(Mutex::new(Vec::new()));
    let all = Arc::clone(&shown);
    std::thread::spawn(move || {
        let mut piece = [0; 4096];
        while let Ok(read @ 1..) = screen.read(&mut piece) {
            let mut all = all.lock().expect("nobody fails with it");
            all.extend_from_slice(&piece[..read]);
        }
    });
    shown
}
