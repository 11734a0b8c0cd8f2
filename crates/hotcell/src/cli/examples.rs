//! Examples at the end of each command's help, for commands that have none beside their arguments.

pub(crate) const PS: &str = "\
Examples:
  hotcell ps                                         your containers
  hotcell ps --all                                   everybody's, as the operator
  hotcell ps --json | jq '.containers[].status'     for programs";

pub(crate) const TOP: &str = "\
Examples:
  hotcell top                                        live, until q or Ctrl-C
  hotcell top --json                                 one snapshot, for programs";

pub(crate) const EXEC: &str = "\
Examples:
  hotcell exec my-app -- make test                   live output, and the command's exit code
  hotcell exec -t my-app -- bash                     an interactive terminal
  hotcell exec -e DEBUG=1 my-app -- ./run            with a variable";

pub(crate) const LOGS: &str = "\
Examples:
  hotcell logs my-app                                what the newest command of a container wrote
  hotcell logs -f my-app                             follow it until it ends";

pub(crate) const KILL: &str = "\
Examples:
  hotcell kill my-app                                end a container and remove its files
  hotcell ps                                         shows ids and aliases";

pub(crate) const FORWARD: &str = "\
Examples:
  hotcell forward my-app 8080:3000                   http://127.0.0.1:8080 is port 3000 of the container
  hotcell serve --allow-ports                        what the server has to be started with";

pub(crate) const TOKEN: &str = "\
Examples:
  hotcell token add alice --expires 90d              prints a token, once
  hotcell token add ops --admin                      with the admin tools and /metrics
  hotcell token list
  hotcell token revoke alice";

pub(crate) const RELOAD: &str = "\
Examples:
  hotcell config check hotcell.toml && hotcell reload";

pub(crate) const DOCTOR: &str = "\
Examples:
  hotcell doctor                                     what works, and how to fix what does not
  hotcell doctor --json                              for programs";

pub(crate) const AUDIT: &str = "\
Examples:
  hotcell audit tail -f                              events as they come
  hotcell audit query --event EXEC_START --since 1h  some of them
  hotcell audit verify                               exit code 1 if one was changed or removed
  hotcell audit export --since 7d events.jsonl";

pub(crate) const EGRESS: &str = "\
Examples:
  hotcell egress check work https://api.example.com  what the configuration decides; exit code 1 if denied
  hotcell egress log --denied --since 1h             what was refused
  hotcell egress reload                              read the file again; a wrong one changes nothing";

pub(crate) const SECRET: &str = "\
Examples:
  hotcell secret test example                        whether [secret.example] can be read and sent, without showing it";

pub(crate) const STATE: &str = "\
Examples:
  hotcell state check                                do rows, output, audit log and engines agree?
  hotcell state export backup.tar                    a copy, while the server runs
  hotcell state import backup.tar                    restore it into an empty directory";

pub(crate) const PULL: &str = "\
Examples:
  hotcell pull python:3.12-slim                      verified and resumable
  hotcell pull --from app.tar                        an archive of `docker save`, or an OCI layout";

pub(crate) const IMAGE: &str = "\
Examples:
  hotcell image ls
  hotcell image rm python:3.12-slim
  hotcell image gc                                   remove what no container uses";

pub(crate) const UPSTREAM: &str = "\
Examples:
  hotcell upstream add files -- npx -y @modelcontextprotocol/server-filesystem /srv/docs
  hotcell upstream test files                        start it and list its tools";

pub(crate) const MEMORY: &str = "\
Examples:
  hotcell memory ls
  hotcell memory rm NAME                             --tool for a saved function";

pub(crate) const CONFIG: &str = "\
Examples:
  hotcell config                                     every value and where it came from
  hotcell config init                                write ./hotcell.toml with every setting as a comment
  hotcell config check hotcell.toml                  exit code 1, and what is wrong where";
