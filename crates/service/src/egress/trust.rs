//! What programs in a container need to use egress as in an ordinary shell: certificates to trust, and
//! places to install to, because the root is read-only.
//!
//! All of it is files below the workspace and variables. Whatever a process does to them harms only
//! its own container; an exec's own variables and the container's come before these.

use bytes::Bytes;
use hotcell_agent_client::{Agent, AgentError, Hello, Operation, TrustFiles, WriteOptions};
use hotcell_domain::Env;

/// Relative to the agent's root.
const DIRECTORY: &str = ".hotcell/trust";
const TEMPORARY: &str = ".hotcell/tmp";
const APT: &str = ".hotcell/apt";

/// Directories that programs expect.
const DIRECTORIES: [&str; 3] = [
    TEMPORARY,
    ".hotcell/apt/lists/partial",
    ".hotcell/apt/archives/partial",
];

/// Variables that name a file of all certificates. For most programs one of the first would do; the
/// others are for those whose configuration names another file.
const BUNDLE_VARIABLES: [&str; 9] = [
    "SSL_CERT_FILE",
    "REQUESTS_CA_BUNDLE",
    "PIP_CERT",
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "CARGO_HTTP_CAINFO",
    "NPM_CONFIG_CAFILE",
    "AWS_CA_BUNDLE",
    "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
];

/// Variables with which package managers ask less and write where they can.
const PACKAGE_VARIABLES: [(&str, &str); 9] = [
    // Debian's marker stops pip, although it would install for the user: the root is read-only.
    ("PIP_BREAK_SYSTEM_PACKAGES", "1"),
    ("PIP_DISABLE_PIP_VERSION_CHECK", "1"),
    // An audit is a POST, which a read-only profile refuses.
    ("npm_config_audit", "false"),
    ("npm_config_fund", "false"),
    ("npm_config_update_notifier", "false"),
    ("CARGO_NET_RETRY", "2"),
    // Otherwise nobody could remove the modules.
    ("GOFLAGS", "-modcacherw"),
    ("DENO_TLS_CA_STORE", "system"),
    ("DENO_NO_UPDATE_CHECK", "1"),
];

/// Variables that name a directory below the root.
const DIRECTORY_VARIABLES: [(&str, &str); 6] = [
    ("npm_config_prefix", ".local"),
    ("CARGO_HOME", ".cargo"),
    ("GOPATH", "go"),
    ("GOCACHE", ".cache/go-build"),
    ("UV_CACHE_DIR", ".cache/uv"),
    // `/tmp` is small, and wheels are large.
    ("TMPDIR", TEMPORARY),
];

/// Where installers put programs, below the root. After everything else: nothing that is there
/// replaces a program of the image.
const PROGRAM_DIRECTORIES: [&str; 3] = [".local/bin", ".cargo/bin", "go/bin"];

/// Writes the files into the container; returns the variables of its processes. Idempotent.
pub(super) async fn install(agent: &Agent, authority_pem: &str) -> Result<Env, AgentError> {
    let files = agent.trust(authority_pem, DIRECTORY).await?;
    let root = &agent.hello().root;
    let operations = vec![
        write("wgetrc", format!("ca_certificate = {}\n", files.bundle)),
        write("apt.conf", apt_configuration(&files.bundle, root)),
    ];
    for done in agent.batch(operations, true).await? {
        done?;
    }
    for directory in DIRECTORIES {
        agent.mkdir(directory.as_bytes(), true).await?;
    }
    Ok(variables(agent.hello(), &files))
}

fn write(name: &str, text: String) -> Operation {
    Operation::Write {
        path: format!("{DIRECTORY}/{name}").into_bytes(),
        data: Bytes::from(text),
        options: WriteOptions {
            create_parents: true,
            ..WriteOptions::default()
        },
    }
}

/// `apt-get update` and `download` for a user who is not root, on a read-only root.
fn apt_configuration(bundle: &str, root: &str) -> String {
    format!(
        "Acquire::https::CAInfo \"{bundle}\";\n\
         Dir::State::lists \"{root}/{APT}/lists\";\n\
         Dir::Cache \"{root}/{APT}\";\n\
         Dir::Cache::archives \"{root}/{APT}/archives\";\n\
         APT::Sandbox::User \"\";\n\
         Debug::NoLocking \"1\";\n"
    )
}

fn variables(hello: &Hello, files: &TrustFiles) -> Env {
    let image = hello.env.iter();
    let image = image.map(|(name, value)| (&name[..], &value[..]));
    let image = Env::of_container(&hello.root, None, image);
    let mut env = Env::default();
    // Cannot fail: all names are ours, and all values short.
    let mut set = |name: &str, value: &str| {
        let _ = env.set(name, value);
    };
    for name in BUNDLE_VARIABLES {
        set(name, &files.bundle);
    }
    // Node adds these to its own.
    set("NODE_EXTRA_CA_CERTS", &files.authority);
    for name in ["WGETRC", "APT_CONFIG"] {
        let file = if name == "WGETRC" {
            "wgetrc"
        } else {
            "apt.conf"
        };
        set(name, &format!("{}/{DIRECTORY}/{file}", hello.root));
    }
    let java = format!(
        "-Djavax.net.ssl.trustStore={} -Djavax.net.ssl.trustStoreType=jks",
        files.java_store
    );
    let java = match image.get("JAVA_TOOL_OPTIONS") {
        Some(own) => format!("{own} {java}"),
        None => java,
    };
    set("JAVA_TOOL_OPTIONS", &java);
    for (name, value) in PACKAGE_VARIABLES {
        set(name, value);
    }
    for (name, directory) in DIRECTORY_VARIABLES {
        set(name, &format!("{}/{directory}", hello.root));
    }
    let programs = PROGRAM_DIRECTORIES.map(|name| format!("{}/{name}", hello.root));
    let path = image.get("PATH").unwrap_or_default();
    set("PATH", &format!("{path}:{}", programs.join(":")));
    env
}
