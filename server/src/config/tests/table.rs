//! Properties of the table of settings, and of what is generated from it.

use super::{Memory, problems};
use crate::config::settings::{self, Arity, BlockKind, DefaultValue, reference};
use crate::config::suggest::RENAMED;
use crate::config::text::Scalar;
use crate::config::value;
use std::collections::HashSet;
use std::path::{Path, PathBuf};

#[test]
fn the_page_matches_the_table() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/configuration.md");
    if std::env::var_os("SELVEDGE_UPDATE").is_some() {
        std::fs::write(&path, reference::markdown()).unwrap();
    }
    let page = std::fs::read_to_string(&path).unwrap();
    assert!(page == reference::markdown(), "selvedge settings --markdown > docs/configuration.md");
}

#[test]
fn every_default_has_its_kind() {
    let scalar = |text: &str| match text {
        "#true" => Scalar::Flag(true),
        "#false" => Scalar::Flag(false),
        text => Scalar::Text(text.to_owned()),
    };
    for setting in settings::all() {
        if let DefaultValue::Text(text) = setting.default {
            let kind = setting.arguments[0].kind;
            assert!(value::read(kind, &scalar(text), Path::new("")).is_ok(), "{} {text}", setting.name);
        }
        for property in setting.properties {
            if let DefaultValue::Text(text) = property.default {
                assert!(value::read(property.kind, &scalar(text), Path::new("")).is_ok(), "{} {text}", property.name);
            }
        }
    }
}

#[test]
fn message_of_a_placeholder_that_is_not_filled_names_the_settings_that_fill_them() {
    let fills = |kind| {
        use value::ValueKind::{FieldTemplate, RedirectTarget, RewriteTarget, TextTemplate, TryPath};
        matches!(kind, FieldTemplate | RedirectTarget | RewriteTarget | TextTemplate | TryPath)
    };
    let message = problems("pid-file \"{host}\"\n");
    let with_kind = |setting: &&settings::Setting| setting.arguments.iter().any(|argument| fills(argument.kind));
    let filled: HashSet<_> = settings::all().filter(with_kind).map(|setting| setting.name).collect();
    let is_named = |setting: &&settings::Setting| message.contains(&format!("`{}`", setting.name));
    let named: HashSet<_> = settings::all().filter(is_named).map(|setting| setting.name).collect();
    assert_eq!(named, filled, "{message}");
}

#[test]
fn every_entry_is_complete_and_unique_in_its_block() {
    let mut known = HashSet::new();
    for setting in settings::all() {
        assert!(!setting.blocks.is_empty() && setting.doc.ends_with('.'), "{}", setting.name);
        for place in setting.blocks {
            assert!(known.insert((*place, setting.name)), "{} in {place:?}", setting.name);
        }
        let (_, before) = setting.arguments.split_last().unzip();
        for argument in before.unwrap_or_default() {
            assert_eq!(argument.arity, Arity::One, "{}: only the last may be left out or repeated", setting.name);
        }
        if let DefaultValue::Effect(what_follows) = setting.default {
            assert!(!what_follows.is_empty(), "{} has no default and no text for its absence", setting.name);
        }
    }
    for place in BlockKind::ALL {
        let owned = settings::all().any(|setting| setting.block == Some(place));
        assert!(settings::in_block(place).count() > 0 && (owned || place == BlockKind::Top), "{place:?}");
    }
}

#[test]
fn every_example_is_valid() {
    for setting in settings::all().filter(|setting| !setting.example.is_empty()) {
        let example = setting.example;
        let inside = match setting.blocks[0] {
            BlockKind::Top => example.to_owned(),
            BlockKind::Log => format!("log {{\n{example}\n}}"),
            BlockKind::Site if setting.name == "satisfy" => {
                format!("site \"a\" {{\nip-access {{ allow \"10.0.0.1\"; }}\nbasic-auth file=\"u\"\n{example}\n}}")
            }
            BlockKind::Site if ["certificate", "client-certificates", "hsts"].contains(&setting.name) => {
                let certificate = if setting.name == "certificate" { "" } else { "certificate \"a.pem\"" };
                format!("listen \"[::]:443\"\nsite \"a\" {{\nroot \"a\"\n{certificate}\n{example}\n}}")
            }
            BlockKind::Site if setting.name == "on-demand-certificates" => {
                format!("site \"*\" {{\nroot \"a\"\n{example}\n}}")
            }
            BlockKind::Acme if setting.name == "dns-hook" => format!("acme {{\nchallenge \"dns-01\"\n{example}\n}}"),
            BlockKind::Acme => format!("acme {{\n{example}\n}}"),
            BlockKind::Site => format!("site \"a\" {{\nroot \"a\"\n{example}\n}}"),
            BlockKind::Route if example.starts_with("route") => format!("site \"a\" {{\nroot \"a\"\n{example}\n}}"),
            BlockKind::Route => format!("site \"a\" {{\nroute \"/*\" {{\ndeny\n{example}\n}}\n}}"),
            BlockKind::Files => format!("site \"a\" {{\nroot \"a\"\nroute \"/*\" {{\nfiles {{\n{example}\n}}\n}}\n}}"),
            BlockKind::When => {
                format!("site \"a\" {{\nroute \"/*\" {{\ndeny\nwhen {{\n{example}\n}}\n}}\n}}")
            }
            BlockKind::Upstream => {
                let server = if setting.name == "server" { "" } else { "server \"https://a.internal\"" };
                format!("upstream \"u\" {{\n{server}\n{example}\n}}\nsite \"a\" {{ route \"/*\" {{ proxy \"u\"; }}; }}")
            }
            BlockKind::UpstreamTls => format!(
                "upstream \"u\" {{\nserver \"https://a.internal\"\ntls {{\n{example}\n}}\n}}\n\
                 site \"a\" {{ route \"/*\" {{ proxy \"u\"; }}; }}"
            ),
            BlockKind::Proxy => {
                format!("site \"a\" {{\nroute \"/a/*\" {{\nproxy \"http://a.internal\" {{\n{example}\n}}\n}}\n}}")
            }
            BlockKind::Php => {
                format!(
                    "site \"a\" {{\nroot \"a\"\nroute \"/*\" {{\nphp \"unix:/run/php.sock\" {{\n{example}\n}}\n}}\n}}"
                )
            }
            place => panic!("an example in {place:?}"),
        };
        let mut memory = Memory::of(&inside);
        memory.files.insert("sites/a.kdl".into(), String::new());
        if let Err(problems) = memory.read() {
            panic!("{}: {problems}", setting.name);
        }
    }
}

/// The generated page and the engine's defaults must agree.
#[test]
fn default_limits_equal_the_engines() {
    let ours = Memory::of("").read().unwrap().settings.limits;
    let engine = selvedge::Limits::default();
    assert_eq!(ours.request_line_bytes_max, engine.message.request_line_bytes_max);
    assert_eq!(ours.head_bytes_max, engine.message.head_bytes_max);
    assert_eq!(ours.fields_max, engine.message.fields_max);
    assert_eq!(ours.chunk_extension_bytes_max, engine.message.chunk_extension_bytes_max);
    assert_eq!(ours.chunk_overhead_allowance, engine.message.chunk_overhead_allowance);
    assert_eq!(ours.trailer_bytes_max, engine.message.trailer_bytes_max);
    assert_eq!(ours.header_timeout, engine.header_timeout);
    assert_eq!(ours.body_timeout, engine.body_timeout);
    assert_eq!(ours.body_min_rate, engine.body_min_rate);
    assert_eq!(ours.send_timeout, engine.send_timeout);
    assert_eq!(ours.send_min_rate, engine.send_min_rate);
    assert_eq!(ours.keep_alive_timeout, engine.keep_alive_timeout);
    assert_eq!(ours.body_bytes_max, engine.body_bytes_max);
    assert_eq!(ours.discard_bytes_max, engine.discard_bytes_max);
    assert_eq!(ours.shutdown_timeout, engine.shutdown_timeout);
    assert_eq!(ours.shutdown_notice, engine.shutdown_notice);
    assert_eq!(ours.connections_max, None);
    assert_eq!(ours.http2, engine.http2);
}

#[test]
fn the_json_list_has_every_setting() {
    let list: serde_json::Value = serde_json::from_str(&reference::json()).unwrap();
    assert_eq!(list.as_array().unwrap().len(), settings::all().count());
    let head_time = list.as_array().unwrap().iter().find(|entry| entry["name"] == "header-timeout").unwrap();
    assert_eq!(head_time["default"], "10s");
    assert_eq!(head_time["arguments"][0]["unit"], "seconds");
    assert!(reference::text().contains("header-timeout TIME"));
}

#[test]
fn each_renamed_word_is_suggested() {
    let in_limits = |old: &str| format!("limits {{ {old} 1; }}");
    let mut cases = vec![
        ("clients", "site \"a\" { clients { deny \"10.0.0.1\"; }; }".to_owned()),
        ("observe", "site \"a\" { rate-limit 1 observe=#true; }".to_owned()),
        ("sidecars", "site \"a\" { sidecars #false; }".to_owned()),
        ("sidecars", "site \"a\" { route \"/*\" { files sidecars=#false; }; }".to_owned()),
        ("try", "site \"a\" { route \"/*\" { files { try \"*\"; }; }; }".to_owned()),
    ];
    let others = RENAMED.iter().filter(|(old, _)| !cases.iter().any(|(name, _)| name == old));
    let of_limits: Vec<_> = others.map(|(old, _)| (*old, in_limits(old))).collect();
    assert_eq!(of_limits.len(), 9, "the names in `limits`");
    cases.extend(of_limits);
    for (old, text) in cases {
        let (_, new) = RENAMED.iter().find(|(name, _)| *name == old).unwrap();
        assert!(problems(&text).contains(&format!("it was renamed to `{new}`")), "{text}: {}", problems(&text));
    }
}

#[test]
fn the_configuration_of_a_system_has_sockets_and_certificates_elsewhere() {
    let paths = |file: &str, text: &str| {
        let memory = Memory { files: [(file.into(), text.to_owned())].into(), ..Memory::default() };
        let settings = crate::config::read(Path::new(file), &memory).unwrap().settings;
        (settings.process.control, settings.certificate_folder)
    };
    let expected = |control: &str, certificates: &str| (PathBuf::from(control), PathBuf::from(certificates));
    let of_system = expected("/run/selvedge/control", "/var/lib/selvedge/certificates");
    let by_https = "control \"https://control.example.com:8443\" client-ca=\"operators.pem\"\n";
    for text in ["", by_https] {
        assert_eq!(paths("/etc/selvedge/selvedge.kdl", text), of_system, "{text}");
        let beside = expected("/srv/selvedge.sock", "/srv/certificates");
        assert_eq!(paths("/srv/selvedge.kdl", text), beside, "{text}");
    }
    let own = "control \"own.sock\"\ncertificate-folder \"own\"\n";
    let own_paths = expected("/etc/selvedge/own.sock", "/etc/selvedge/own");
    assert_eq!(paths("/etc/selvedge/selvedge.kdl", own), own_paths);
}
