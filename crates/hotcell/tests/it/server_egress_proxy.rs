//! The proxy inside containers: for programs that want one, and for all of a profile with
//! `env = "proxy"`.

use serde_json::json;

use crate::server_egress::{Configured, HOST, Origin, output, run};
use crate::support::mcp::Client;

const PROXY: &str = "127.77.255.254:3128";

fn printed(client: &mut Client, script: &str) -> String {
    let script = format!("{script} 2>&1");
    output(&run(client, "cell", &script)).trim_end().to_owned()
}

#[test]
fn a_program_that_wants_a_proxy_has_one_with_the_same_decisions() {
    let origin = Origin::start();
    let configured = Configured::new(&origin, &[HOST]);
    let server = configured.home.serve();
    let mut client = server.client();
    client.ok("spawn", json!({ "alias": "cell", "egress": "work" }));
    let pem = json!({ "container_id": "cell", "path": "origin.pem", "content": origin.pem() });
    client.ok("fs_write", pem);
    for way in [
        format!("-x http://{PROXY}"),
        format!("--socks5-hostname {PROXY}"),
    ] {
        let curl = format!("curl -sS -m 20 --cacert origin.pem {way}");
        let plain = printed(&mut client, &format!("{curl} http://{HOST}/a"));
        assert_eq!(plain, "plain /a", "{way}");
        let tls = printed(&mut client, &format!("{curl} https://{HOST}/b"));
        assert_eq!(tls, "tls /b", "{way}");
        let ask = format!("curl -sSk -m 20 -w ' %{{http_code}}' {way} https://other.example.com/");
        let ran = run(&mut client, "cell", &ask);
        assert!(output(&ran).ends_with(" 403"), "{way}: {ran}");
        assert_eq!(
            ran["egress"]["denied"][0]["host"], "other.example.com",
            "{ran}"
        );
    }
    // What listens on the host's loopback is no name, and stays where it is.
    let address = origin.plain();
    let ask = format!("curl -sS -m 20 -w ' %{{http_code}}' -x http://{PROXY} http://{address}/");
    let said = printed(&mut client, &ask);
    assert!(said.ends_with(" 403"), "{said}");
    assert_eq!(printed(&mut client, "echo ${http_proxy-unset}"), "unset");
    // Without a profile nobody listens there.
    client.ok("spawn", json!({ "alias": "sealed" }));
    let ask = format!("curl -sS -m 20 -x http://{PROXY} http://{HOST}/ 2>/dev/null; echo $?");
    assert_eq!(output(&run(&mut client, "sealed", &ask)), "7\n");
    assert_eq!(output(&run(&mut client, "cell", &ask)), "plain /0\n");
    assert!(server.terminate().success());
}

#[test]
fn a_profile_points_every_program_at_the_proxy_if_it_says_so() {
    let origin = Origin::start();
    let configured = Configured::new(&origin, &[HOST]);
    let server = configured.home.serve();
    let mut client = server.client();
    client.ok("spawn", json!({ "alias": "cell", "egress": "work" }));
    // The address that curl is connected to is that of the name, or that of the proxy.
    let ask = format!("curl -sS -m 20 -w ' %{{remote_ip}}' http://{HOST}/a");
    let by_name = printed(&mut client, &ask);
    assert!(by_name.starts_with("plain /a 127.77.0."), "{by_name}");
    configured.write(&format!("{}env = 'proxy'\n", origin.config(&[HOST])));
    assert!(configured.home.run(&["egress", "reload"]).status.success());
    let by_proxy = printed(&mut client, &ask);
    assert_eq!(by_proxy, "plain /a 127.77.255.254");
    let python = "python3 -c 'import urllib.request as r; print(r.getproxies()[\"https\"], r.proxy_bypass(\"localhost\"))'";
    let said = printed(&mut client, python);
    assert!(said.starts_with(&format!("http://{PROXY} ")), "{said}");
    assert!(!said.ends_with("False"), "{said}");
    let env = printed(&mut client, "env");
    for line in [
        format!("HTTPS_PROXY=http://{PROXY}"),
        "NO_PROXY=localhost,127.0.0.1,::1".to_owned(),
        "NODE_USE_ENV_PROXY=1".to_owned(),
    ] {
        assert!(env.lines().any(|own| own == line), "{line}: {env}");
    }
    assert!(!env.to_uppercase().contains("ALL_PROXY"), "{env}");
    let java = env
        .lines()
        .find(|line| line.starts_with("JAVA_TOOL_OPTIONS="));
    let java = java.expect("it is set");
    assert!(
        java.contains("trustStore=") && java.contains("-Dhttps.proxyPort=3128"),
        "{java}"
    );
    assert!(server.terminate().success());
}
