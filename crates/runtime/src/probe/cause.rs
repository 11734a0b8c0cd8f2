//! Why a probe fails on this host, as far as we can tell, and how to fix it.

use std::fs;
use std::io;

use rustix::process::geteuid;

/// A step that failed on this host.
#[derive(Debug, thiserror::Error)]
#[error("could not {step}")]
pub struct ProbeError {
    /// Completes "could not …".
    pub step: &'static str,
    /// The error of the system call.
    pub source: io::Error,
    /// The most likely cause.
    pub cause: Cause,
}

/// Host settings that prevent isolation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// `kernel.apparmor_restrict_unprivileged_userns` is on, or a profile confines us.
    AppArmor,
    /// `kernel.unprivileged_userns_clone` is off.
    SwitchedOff,
    /// `user.max_user_namespaces` is 0, or all are in use.
    NoneLeft,
    /// This process has a seccomp filter: it probably runs in a container itself.
    Seccomp,
    /// The kernel lacks the feature.
    Kernel,
    /// None of the above.
    Unknown,
}

impl Cause {
    /// How an operator can fix it, if possible.
    pub fn fix(self) -> Option<&'static str> {
        match self {
            Self::AppArmor => Some(
                "give this program an AppArmor profile with `userns,`, or lift the restriction for all \
                 with `sysctl -w kernel.apparmor_restrict_unprivileged_userns=0`",
            ),
            Self::SwitchedOff => Some("`sysctl -w kernel.unprivileged_userns_clone=1`"),
            Self::NoneLeft => Some("`sysctl -w user.max_user_namespaces=15000`"),
            Self::Seccomp => Some(
                "run it outside of the surrounding container, or start that with \
                 `--security-opt seccomp=unconfined`",
            ),
            Self::Kernel => Some("use Linux 5.14 or later"),
            Self::Unknown => None,
        }
    }
}

/// Derives the cause from the host's settings.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is one setting of the kernel"
)]
#[derive(Debug, Clone, Copy, Default)]
struct Settings {
    ordinary_user: bool,
    apparmor_restricts: bool,
    switched_off: bool,
    none_allowed: bool,
    filtered: bool,
}

impl ProbeError {
    pub(super) fn new(step: &'static str, source: io::Error) -> Self {
        let cause = explain(source.raw_os_error(), Settings::read());
        Self {
            step,
            source,
            cause,
        }
    }

    /// An error that is not about isolation.
    pub(super) fn plain(step: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self {
            step,
            source,
            cause: Cause::Unknown,
        }
    }
}

impl Settings {
    fn read() -> Self {
        let value = |path: &str| fs::read_to_string(path).map(|text| text.trim().to_owned());
        let is = |path: &str, expected: &str| value(path).is_ok_and(|text| text == expected);
        let status = value("/proc/self/status").unwrap_or_default();
        let filter = status
            .lines()
            .find_map(|line| line.strip_prefix("Seccomp:"));
        Self {
            ordinary_user: !geteuid().is_root(),
            apparmor_restricts: is(
                "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
                "1",
            ) || value("/proc/self/attr/current")
                .is_ok_and(|profile| profile.ends_with("(enforce)")),
            switched_off: is("/proc/sys/kernel/unprivileged_userns_clone", "0"),
            none_allowed: is("/proc/sys/user/max_user_namespaces", "0"),
            filtered: filter.is_some_and(|mode| mode.trim() != "0"),
        }
    }
}

fn explain(errno: Option<i32>, settings: Settings) -> Cause {
    let forbidden = matches!(errno, Some(libc::EPERM | libc::EACCES));
    if settings.none_allowed || matches!(errno, Some(libc::ENOSPC | libc::EUSERS)) {
        Cause::NoneLeft
    } else if forbidden && settings.ordinary_user && settings.switched_off {
        Cause::SwitchedOff
    } else if forbidden && settings.ordinary_user && settings.apparmor_restricts {
        Cause::AppArmor
    } else if forbidden && settings.filtered {
        Cause::Seccomp
    } else if errno == Some(libc::ENOSYS) {
        if settings.filtered {
            Cause::Seccomp
        } else {
            Cause::Kernel
        }
    } else {
        Cause::Unknown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_explains_a_refusal_it_can_have_caused() {
        let user = Settings {
            ordinary_user: true,
            ..Settings::default()
        };
        let apparmor = Settings {
            apparmor_restricts: true,
            ..user
        };
        assert_eq!(explain(Some(libc::EACCES), apparmor), Cause::AppArmor);
        let root = Settings {
            ordinary_user: false,
            ..apparmor
        };
        assert_eq!(explain(Some(libc::EACCES), root), Cause::Unknown);
        let off = Settings {
            switched_off: true,
            ..user
        };
        assert_eq!(explain(Some(libc::EPERM), off), Cause::SwitchedOff);
        assert_eq!(explain(Some(libc::ENOSPC), user), Cause::NoneLeft);
        let filtered = Settings {
            filtered: true,
            ..Settings::default()
        };
        assert_eq!(explain(Some(libc::EPERM), filtered), Cause::Seccomp);
        assert_eq!(explain(Some(libc::ENOSYS), user), Cause::Kernel);
        assert_eq!(explain(Some(libc::ENOENT), user), Cause::Unknown);
    }
}
