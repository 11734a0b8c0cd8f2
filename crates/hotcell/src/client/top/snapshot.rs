//! Snapshots of the server's containers and execs, and the rates between two of them.

use std::time::Instant;

use anyhow::Result;
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::connection::Server;

/// The containers and execs at one moment.
pub(super) struct Snapshot {
    at: Instant,
    containers: Vec<Value>,
    execs: Vec<Value>,
}

/// Resource usage of containers and execs.
pub(super) struct Usage {
    pub(super) containers: Vec<Value>,
    pub(super) execs: Vec<Value>,
}

#[derive(Deserialize)]
struct Containers {
    containers: Vec<Value>,
}

#[derive(Deserialize)]
struct Execs {
    execs: Vec<Value>,
}

impl Snapshot {
    pub(super) async fn take(server: &Server) -> Result<Self> {
        let all = || json!({ "all": true });
        let Containers { containers } = server.call("list_containers", all()).await?;
        let Execs { execs } = server.call("list_execs", all()).await?;
        Ok(Self {
            at: Instant::now(),
            containers,
            execs,
        })
    }

    /// The usage now, with rates since an earlier snapshot.
    pub(super) fn since(&self, before: &Self) -> Usage {
        let seconds = self.at.duration_since(before.at).as_secs_f64();
        let containers = self.containers.iter();
        let execs = self.execs.iter();
        Usage {
            containers: containers
                .map(|now| container(now, find(&before.containers, "container_id", now), seconds))
                .collect(),
            execs: execs
                .map(|now| exec(now, find(&before.execs, "exec_id", now), seconds))
                .collect(),
        }
    }
}

fn find<'a>(before: &'a [Value], id: &str, now: &Value) -> Option<&'a Value> {
    before.iter().find(|then| then[id] == now[id])
}

fn container(now: &Value, before: Option<&Value>, seconds: f64) -> Value {
    json!({
        "container_id": now["container_id"],
        "alias": now["alias"],
        "principal": now["principal"],
        "status": now["status"],
        "image": now["image"],
        // Milliseconds per second are thousandths of a core.
        "cpu_cores": rate(now, before, "cpu_ms", seconds).map(|rate| rate / 1000.0),
        "memory_bytes": now["memory"]["used_bytes"],
        "memory_limit_bytes": now["memory"]["limit_bytes"],
    })
}

fn exec(now: &Value, before: Option<&Value>, seconds: f64) -> Value {
    json!({
        "exec_id": now["exec_id"],
        "container_id": now["container_id"],
        "status": now["status"],
        "created_at": now["created_at"],
        "cmd": now["cmd"],
        "output_bytes": now["output_bytes"],
        "output_bytes_per_s": rate(now, before, "output_bytes", seconds),
    })
}

/// The same with numbers and lists formatted for people.
pub(super) fn for_people(used: &Value) -> Value {
    let words = used["cmd"].as_array().into_iter().flatten();
    let words: Vec<&str> = words.filter_map(Value::as_str).collect();
    let mut shown = used.clone();
    let cores = used["cpu_cores"].as_f64();
    shown["cpu"] = cores.map(|cores| format!("{:.1} %", cores * 100.0)).into();
    shown["memory"] = used["memory_bytes"].as_f64().map(bytes).into();
    shown["memory_limit"] = used["memory_limit_bytes"].as_f64().map(bytes).into();
    shown["output"] = used["output_bytes"].as_f64().map(bytes).into();
    let rate = used["output_bytes_per_s"].as_f64().map(bytes);
    shown["rate"] = rate.map(|rate| format!("{rate}/s")).into();
    shown["command"] = words.join(" ").into();
    shown
}

/// The increase of a counter per second; `None` if the object is new.
fn rate(now: &Value, before: Option<&Value>, field: &str, seconds: f64) -> Option<f64> {
    let (now, before) = (now[field].as_u64()?, before?[field].as_u64()?);
    #[expect(clippy::cast_precision_loss, reason = "it is shown with a few digits")]
    let more = now.saturating_sub(before) as f64;
    (seconds > 0.0).then(|| more / seconds)
}

/// A size for people.
fn bytes(bytes: f64) -> String {
    let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    let size = |shift: u32| f64::from(1_u32 << shift);
    match units.into_iter().find(|(shift, _)| bytes >= size(*shift)) {
        Some((shift, unit)) => format!("{:.1} {unit}", bytes / size(shift)),
        None => format!("{bytes:.0} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn snapshot(at: Instant, cpu_ms: u64, output_bytes: u64) -> Snapshot {
        Snapshot {
            at,
            containers: vec![
                json!({"container_id": "c_1", "cpu_ms": cpu_ms, "memory": {"limit_bytes": 512 << 20, "used_bytes": 1536}}),
            ],
            execs: vec![
                json!({"exec_id": "e_1", "container_id": "c_1", "cmd": ["sh", "-c", "yes"], "output_bytes": output_bytes}),
            ],
        }
    }

    #[test]
    fn rates_are_of_the_time_between_two_looks() {
        let began = Instant::now();
        let before = snapshot(began, 1000, 0);
        let after = snapshot(began + Duration::from_secs(2), 2500, 3 << 20);
        let usage = after.since(&before);
        let (container, exec) = (&usage.containers[0], &usage.execs[0]);
        assert_eq!(container["cpu_cores"], 0.75);
        let shown = for_people(container);
        let shown = ["cpu", "memory", "memory_limit"].map(|field| shown[field].clone());
        assert_eq!(shown, ["75.0 %", "1.5 KiB", "512.0 MiB"]);
        let shown = for_people(exec);
        let shown = ["output", "rate", "command"].map(|field| shown[field].clone());
        assert_eq!(shown, ["3.0 MiB", "1.5 MiB/s", "sh -c yes"]);
        // An object that is new has no rate yet.
        let fresh = Snapshot {
            containers: Vec::new(),
            ..snapshot(began, 0, 0)
        };
        assert_eq!(after.since(&fresh).containers[0]["cpu_cores"], Value::Null);
    }
}
