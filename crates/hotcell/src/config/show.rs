//! `hotcell config`: shows every setting of a server, and the source of its value.

use anyhow::{Result, anyhow};
use hotcell_egress::ProfileName;
use serde_json::{Value, json};

use super::catalogue::{Catalogue, Setting};
use super::load::{Config, Effective, LoadError, Source, load};
use super::table::Tables;
use super::toml_text::{MASK, literal, quoted};

/// The settings as TOML with the sources as comments, or as JSON.
pub(super) fn text(config: &Config, catalogue: &Catalogue, is_json: bool) -> Result<String> {
    let config = of_serve(config)?;
    if is_json {
        let json = serde_json::to_string_pretty(&as_json(&config, catalogue))?;
        return Ok(json + "\n");
    }
    Ok(as_toml(&config, catalogue))
}

/// The configuration that `hotcell serve` would have.
fn of_serve(config: &Config) -> Result<Config> {
    let mut words = vec!["hotcell".into()];
    if let Some(file) = &config.file {
        words.extend(["--config".into(), file.into()]);
    }
    words.push("serve".into());
    match load(&words) {
        Ok(loaded) => Ok(loaded.config),
        Err(LoadError::Config { error, .. }) => Err(error),
        Err(LoadError::Usage(error)) => Err(anyhow!("{error}")),
    }
}

fn as_toml(config: &Config, catalogue: &Catalogue) -> String {
    let mut lines = vec![match &config.file {
        Some(path) => format!("# The file is {}", path.display()),
        None => "# There is no configuration file".to_owned(),
    }];
    for section in catalogue.sections() {
        lines.push(format!("\n[{section}]"));
        for setting in catalogue.of_section(section) {
            lines.push(line(setting, config));
        }
    }
    if !config.tables.aliases.is_empty() {
        lines.push("\n[images.aliases]".to_owned());
        for (name, image) in config.tables.aliases.iter() {
            lines.push(format!("{name} = {}  # file", quoted(&image.to_string())));
        }
    }
    lines.extend(assigned_lines(&config.tables));
    for (principal, quotas) in &config.tables.quotas {
        lines.push(format!("\n[quota.{}]", quoted(principal.as_str())));
        let quotas = quotas.chosen();
        lines.extend(quotas.map(|(quota, value)| format!("{quota} = {value}  # file")));
    }
    for rule in &config.tables.rules {
        lines.push(format!("\n[rule.{}]", quoted(&rule.name)));
        let decision = quoted(rule.decision.as_str());
        lines.push(format!("action = {decision}  # file"));
        lines.push(format!("server = {}  # file", quoted(&rule.server)));
        lines.push(format!("tool = {}  # file", quoted(&rule.tool)));
    }
    lines.join("\n") + "\n"
}

/// `[images.egress]` and `[principal.NAME]`.
fn assigned_lines(tables: &Tables) -> Vec<String> {
    let mut lines = Vec::new();
    if !tables.image_egress.is_empty() {
        lines.push("\n[images.egress]".to_owned());
    }
    for (image, profile) in &tables.image_egress {
        let (image, profile) = (quoted(&image.to_string()), quoted(profile.as_str()));
        lines.push(format!("{image} = {profile}  # file"));
    }
    for (principal, egress) in &tables.principals {
        lines.push(format!("\n[principal.{}]", quoted(principal.as_str())));
        if let Some(profile) = &egress.default {
            lines.push(format!("egress = {}  # file", quoted(profile.as_str())));
        }
        if let Some(granted) = &egress.granted {
            let granted = granted.iter().map(|profile| quoted(profile.as_str()));
            let granted: Vec<String> = granted.collect();
            let granted = granted.join(", ");
            lines.push(format!("egress_profiles = [{granted}]  # file"));
        }
    }
    lines
}

fn line(setting: &Setting, config: &Config) -> String {
    let Some(effective) = config.find(setting) else {
        return format!("# {} is not a setting of this command", setting.key);
    };
    let from = from(setting, effective);
    if effective.values.is_empty() && !setting.is_list {
        let default = setting.default.as_deref().unwrap_or("none");
        return format!("# {}: {default}  # {from}", setting.key);
    }
    let value = literal(setting, &effective.values);
    format!("{} = {value}  # {from}", setting.key)
}

impl Config {
    fn find(&self, setting: &Setting) -> Option<&Effective> {
        self.effective.iter().find(|one| one.flag == setting.flag)
    }
}

/// The source of a value, by the name that the operator used.
fn from(setting: &Setting, effective: &Effective) -> String {
    match effective.source {
        Source::Flag => format!("--{}", setting.flag),
        Source::Variable => setting.variable.clone(),
        Source::File => "file".to_owned(),
        Source::OldName(name) => name.to_owned(),
        Source::Default => "default".to_owned(),
    }
}

fn as_json(config: &Config, catalogue: &Catalogue) -> Value {
    let setting = |setting: &Setting| {
        let effective = config.find(setting)?;
        let value = |value: &String| {
            let shown = if setting.is_secret { MASK } else { value };
            Value::from(shown)
        };
        let values: Vec<Value> = effective.values.iter().map(value).collect();
        Some(json!({
            "section": setting.section,
            "key": setting.key,
            "value": if setting.is_list { Value::from(values) } else { values.into_iter().next().into() },
            "source": kind_of(effective.source),
            "from": from(setting, effective),
            "default": setting.default,
        }))
    };
    let settings: Vec<Value> = catalogue.settings.iter().filter_map(setting).collect();
    let Tables {
        aliases,
        quotas,
        rules,
        upstreams,
        egress,
        principals,
        image_egress,
        ..
    } = &config.tables;
    let aliases = aliases
        .iter()
        .map(|(name, image)| (name.to_owned(), json!(image.to_string())));
    let quotas = quotas.iter().map(|(principal, quotas)| {
        let quotas = quotas
            .chosen()
            .map(|(quota, value)| (quota.to_string(), json!(value)));
        let quotas: serde_json::Map<_, _> = quotas.collect();
        (principal.to_string(), Value::from(quotas))
    });
    json!({
        "file": config.file.as_ref().map(|path| path.display().to_string()),
        "settings": settings,
        "aliases": aliases.collect::<serde_json::Map<_, _>>(),
        "image_egress": image_egress.iter().map(|(image, profile)| {
            (image.to_string(), json!(profile.as_str()))
        }).collect::<serde_json::Map<_, _>>(),
        "principals": principals.iter().map(|(principal, egress)| {
            let names = |names: &Vec<ProfileName>| names.iter().map(ToString::to_string).collect::<Vec<_>>();
            let egress = json!({
                "egress": egress.default.as_ref().map(ToString::to_string),
                "egress_profiles": egress.granted.as_ref().map(names),
            });
            (principal.to_string(), egress)
        }).collect::<serde_json::Map<_, _>>(),
        "quotas": quotas.collect::<serde_json::Map<_, _>>(),
        "rules": rules.iter().map(|rule| json!({
            "name": rule.name,
            "server": rule.server,
            "tool": rule.tool,
            "action": rule.decision.as_str(),
        })).collect::<Vec<_>>(),
        // Names alone: any value of an entry may be a secret.
        "egress": json!({
            "default": egress.default.as_str(),
            "profiles": egress.granted.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "defined": egress.profiles.keys().map(ToString::to_string).collect::<Vec<_>>(),
        }),
        "upstreams": upstreams.iter().map(|entry| entry.name.as_str()).collect::<Vec<_>>(),
    })
}

fn kind_of(source: Source) -> &'static str {
    match source {
        Source::Flag => "flag",
        Source::Variable => "environment",
        Source::File => "file",
        Source::OldName(_) => "old_name",
        Source::Default => "default",
    }
}
