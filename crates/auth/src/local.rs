//! Callers on this machine, identified by their user id, which the kernel reports.

use std::io::Read;

use hotcell_domain::{Caller, Name, Principal};

/// The file with user names.
const PASSWD: &str = "/etc/passwd";

/// Most bytes of it that are read.
const PASSWD_BYTES_MAX: u64 = 4 << 20;

/// Root may do everything anyway.
const ROOT: u32 = 0;

/// The caller for a process of user `uid`, on a server that runs as user `own_uid`.
///
/// The server's own user is `local`, as is everyone without authentication: so containers from
/// before authentication keep their owner. Any other user is `user:NAME`. Admins are the server's
/// own user, who owns its state, and root.
pub fn local_caller(uid: u32, own_uid: u32) -> Caller {
    let principal = if uid == own_uid {
        Principal::local()
    } else {
        user(uid, &passwd().unwrap_or_default())
    };
    Caller {
        principal,
        client: None,
        client_version: None,
        is_admin: uid == own_uid || uid == ROOT,
        trace: None,
    }
}

fn passwd() -> std::io::Result<String> {
    let mut text = Vec::new();
    let file = std::fs::File::open(PASSWD)?;
    file.take(PASSWD_BYTES_MAX).read_to_end(&mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// A user without a name is identified by its number.
fn user(uid: u32, passwd: &str) -> Principal {
    let named = passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next().filter(|name| !name.is_empty())?;
        let number: u32 = fields.nth(1)?.parse().ok()?;
        (number == uid).then_some(name)
    });
    let named = named.and_then(|name| Name::parse(&format!("user:{name}")).ok());
    Principal::new(named.unwrap_or_else(|| {
        Name::parse(&format!("user:uid-{uid}")).expect("it is short and printable")
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const USERS: &str = "root:x:0:0:root:/root:/bin/bash\n\
        broken\n:x:7::\nalice:x:1000:1000::/home/alice:/bin/sh\ntoor:x:0:0::/:/bin/sh\n";

    #[test]
    fn a_user_is_called_by_its_first_name_or_its_number() {
        for (uid, name) in [
            (0, "user:root"),
            (1000, "user:alice"),
            (7, "user:uid-7"),
            (1, "user:uid-1"),
        ] {
            assert_eq!(user(uid, USERS).as_str(), name);
        }
    }

    #[test]
    fn the_servers_own_user_is_local_and_admin_and_others_are_themselves() {
        let own = local_caller(1000, 1000);
        assert_eq!((own.principal, own.is_admin), (Principal::local(), true));
        let root = local_caller(0, 1000);
        assert_eq!(
            (root.principal.as_str(), root.is_admin),
            ("user:root", true)
        );
        let other = local_caller(1001, 1000);
        assert!(other.principal.as_str().starts_with("user:") && !other.is_admin);
    }
}
