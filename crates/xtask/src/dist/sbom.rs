//! The bill of materials, in the format `CycloneDX`: every crate that is linked into the program.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{Product, Release, hex, oci};

/// The program inside each container: a build script puts it into ours, so Cargo does not count it.
const EMBEDDED: &str = "hotcell-agent";

/// The product `hotcell-VERSION.cdx.json`, from what `cargo metadata` says.
pub(super) fn write(metadata: &Value, release: &Release) -> Result<Product> {
    let packages: BTreeMap<&str, &Value> = array(&metadata["packages"])
        .map(|package| (text(&package["id"]), package))
        .collect();
    let nodes: BTreeMap<&str, &Value> = array(&metadata["resolve"]["nodes"])
        .map(|node| (text(&node["id"]), node))
        .collect();
    let by_name = |name: &str| {
        let found = packages.iter().find(|(_, package)| package["name"] == name);
        found
            .map(|(id, _)| *id)
            .with_context(|| format!("cargo knows no package {name}"))
    };
    let root = by_name("hotcell")?;
    let linked = linked([root, by_name(EMBEDDED)?], &nodes);
    let reference = |id: &str| {
        packages
            .get(id)
            .map(|package| purl(package))
            .unwrap_or_default()
    };
    let components: Vec<Value> = linked
        .iter()
        .filter(|id| **id != root)
        .filter_map(|id| packages.get(id))
        .map(|package| component(package))
        .collect();
    let dependencies: Vec<Value> = linked
        .iter()
        .map(|id| {
            let mut on: Vec<String> = needed(nodes.get(id))
                .filter(|id| linked.contains(id))
                .map(reference)
                .collect();
            on.sort();
            json!({ "ref": reference(id), "dependsOn": on })
        })
        .collect();
    let mut main = component(packages[root]);
    main["type"] = "application".into();
    let mut document = json!({
        "bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
        "metadata": { "timestamp": oci::rfc3339(release.epoch_s), "component": main },
        "components": components, "dependencies": dependencies,
    });
    // Of its content, so that the same content has the same number.
    let hash = hex(&Sha256::digest(document.to_string()));
    document["serialNumber"] = format!(
        "urn:uuid:{}-{}-5{}-8{}-{}",
        &hash[..8],
        &hash[8..12],
        &hash[13..16],
        &hash[17..20],
        &hash[20..32]
    )
    .into();
    let bytes = serde_json::to_vec_pretty(&document)?;
    Ok(Product {
        name: format!("hotcell-{}.cdx.json", release.version),
        bytes,
    })
}

/// The packages that the roots need to run, without those of tests and build scripts.
fn linked<'a>(roots: [&'a str; 2], nodes: &BTreeMap<&'a str, &'a Value>) -> BTreeSet<&'a str> {
    let (mut found, mut waiting) = (BTreeSet::new(), roots.to_vec());
    while let Some(id) = waiting.pop() {
        if found.insert(id) {
            waiting.extend(needed(nodes.get(id)));
        }
    }
    found
}

fn needed<'a>(node: Option<&&'a Value>) -> impl Iterator<Item = &'a str> {
    let dependencies = node.map(|node| &node["deps"]).into_iter().flat_map(array);
    let is_linked =
        |dependency: &&Value| array(&dependency["dep_kinds"]).any(|kind| kind["kind"].is_null());
    dependencies
        .filter(is_linked)
        .map(|dependency| text(&dependency["pkg"]))
}

fn component(package: &Value) -> Value {
    let mut component = json!({
        "type": "library", "bom-ref": purl(package), "name": package["name"], "version": package["version"], "purl": purl(package),
    });
    if let Some(licence) = package["license"].as_str() {
        component["licenses"] = json!([{ "expression": licence.replace('/', " OR ") }]);
    }
    component
}

fn purl(package: &Value) -> String {
    format!(
        "pkg:cargo/{}@{}",
        text(&package["name"]),
        text(&package["version"])
    )
}

fn array(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
