//! Precedence of flags, environment, file and defaults.

use std::time::Duration;

use virtlens::config::{Config, Listen, LogFormat, Settings, Span};

fn from_yaml(text: &str) -> Result<Settings, String> {
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    std::fs::write(file.path(), text).expect("it can be written");
    Settings::from_file(file.path()).map_err(|error| error.to_string())
}

fn span(text: &str) -> Span {
    text.parse().expect("a length of time")
}

#[test]
fn higher_layer_overrides_and_unset_falls_through() {
    let seconds = Duration::from_secs;
    for (flag, variable, file, min_age) in [
        (Some("9s"), Some("8s"), "min_age: 7s", seconds(9)),
        (None, Some("8s"), "min_age: 7s", seconds(8)),
        (None, Some(""), "min_age: 7s", seconds(7)),
        (None, None, "min_age: 7s", seconds(7)),
        (None, None, "linger: 7s", seconds(1)),
        (None, None, "# nothing but a comment\n", seconds(1)),
        (None, None, "", seconds(1)),
    ] {
        let flags = Settings {
            min_age: flag.map(span),
            ..Settings::default()
        };
        let environment = Settings::from_env(|name| {
            (name == "VIRTLENS_MIN_AGE")
                .then_some(variable)
                .flatten()
                .map(str::to_owned)
        });
        let layers = flags
            .over(environment.expect("good"))
            .over(from_yaml(file).expect("good"));
        let config = Config::from(layers);
        assert_eq!(config.min_age, min_age, "{flag:?} {variable:?} {file:?}");
    }
}

#[test]
fn every_setting_can_come_from_each_layer() {
    let file = from_yaml(
        "listen: '127.0.0.1:1'\nweb_config: /web.yaml\nmin_age: 2s\nlinger: 3s\nlog_format: json\nlog_level: debug\n\
         node_name: n\nroot: /host\n",
    );
    let environment = Settings::from_env(|name| {
        let value = match name {
            "VIRTLENS_LISTEN" => "127.0.0.1:1",
            "VIRTLENS_WEB_CONFIG" => "/web.yaml",
            "VIRTLENS_MIN_AGE" => "2s",
            "VIRTLENS_LINGER" => "3s",
            "VIRTLENS_LOG_FORMAT" => "json",
            "VIRTLENS_LOG_LEVEL" => "debug",
            "VIRTLENS_NODE_NAME" => "n",
            "VIRTLENS_ROOT" => "/host",
            _ => return None,
        };
        Some(value.to_owned())
    });
    let file = file.expect("good");
    assert_eq!(file, environment.expect("good"));
    let config = Config::from(file);
    assert_eq!(config.listen.port(), 1);
    assert_eq!(config.linger, Duration::from_secs(3));
    assert_eq!(config.log_format, LogFormat::Json);
    assert_eq!(config.node_name.as_deref(), Some("n"));
    assert_eq!(config.root.as_os_str(), "/host");
}

#[test]
fn node_name_of_kubernetes_is_used_if_none_is_configured() {
    for (own, kubernetes, name) in [
        (Some("a"), Some("b"), Some("a")),
        (None, Some("b"), Some("b")),
        (Some(""), Some("b"), Some("b")),
        (None, None, None),
    ] {
        let settings = Settings::from_env(|variable| match variable {
            "VIRTLENS_NODE_NAME" => own.map(str::to_owned),
            "NODE_NAME" => kubernetes.map(str::to_owned),
            _ => None,
        });
        assert_eq!(settings.expect("good").node_name.as_deref(), name);
    }
}

#[test]
fn invalid_config_file_error_has_line() {
    for (text, key, line) in [
        ("min_age: 1s\nminage: 2s\n", "minage", "line 2"),
        ("# a\n\nlinger: soon\n", "soon", "line 3"),
        ("linger: 1m\nlisten: 9877\n", "9877", "line 2"),
        ("log_level: [\n", "log_level", "line 1"),
    ] {
        let error = from_yaml(text).expect_err(text);
        assert!(
            error.contains(key) && error.contains(line),
            "{text:?}: {error}"
        );
    }
}

#[test]
fn addresses_and_durations_parse_in_common_forms() {
    for (text, address) in [
        ("127.0.0.1:80", Some("127.0.0.1:80")),
        (":80", Some(":80")),
        ("0.0.0.0:80", Some("0.0.0.0:80")),
        ("[::]:80", Some("[::]:80")),
        ("[::1]:80", Some("[::1]:80")),
        (":", None),
        (":65536", None),
        ("::", None),
        ("80", None),
        ("localhost:80", None),
        ("", None),
    ] {
        let read: Option<Listen> = text.parse().ok();
        assert_eq!(
            read.map(|listen| listen.to_string()).as_deref(),
            address,
            "{text:?}"
        );
    }
    for (text, ms) in [
        ("500ms", Some(500)),
        ("0s", Some(0)),
        ("2m", Some(120_000)),
        ("1h", Some(3_600_000)),
        ("1", None),
        ("1.5s", None),
        ("-1s", None),
        ("s", None),
        ("18446744073709551615h", None),
    ] {
        let read: Option<Span> = text.parse().ok();
        assert_eq!(
            read.map(|span| span.0),
            ms.map(Duration::from_millis),
            "{text:?}"
        );
    }
}

#[test]
fn thresholds_are_set_by_name() {
    let bounds = |text| from_yaml(text).map(|settings| Config::from(settings).bounds);
    let set = bounds("thresholds: {vhost_busy: 0.5, pool_threads: 16}\n").expect("good");
    assert_eq!(set.get("vhost_busy"), Some(0.5));
    assert_eq!(set.get("pool_threads"), Some(16.0));
    let usual = bounds("linger: 1s\n").expect("good");
    assert_eq!(set.get("quota_used"), usual.get("quota_used"));
    for (text, reason) in [
        ("thresholds: {vhost_busy: 0}\n", "a number above 0"),
        ("thresholds: {vhost_busy: -1}\n", "a number above 0"),
        ("thresholds: {vhost_busy: .nan}\n", "a number above 0"),
        ("thresholds: {vhost_busy: high}\n", "high"),
    ] {
        let error = bounds(text).expect_err("bad");
        assert!(error.contains(reason), "{error}");
    }
}

#[test]
fn unknown_key_error_has_nearest_keys_and_line() {
    for (text, expected) in [
        (
            "linger: 1m\nminage: 2s\n",
            "unknown key \"minage\"; nearest known keys: min_age, linger at line 2 column 1",
        ),
        (
            "linger: 1m\nthresholds:\n  quota_used: 0.8\n  vhost: 1\n",
            "thresholds: unknown threshold \"vhost\"; nearest known thresholds: vhost_busy, \
             virtiofsd_busy at line 4 column 3",
        ),
    ] {
        let error = from_yaml(text).expect_err(text);
        assert!(error.ends_with(expected), "{error}\n{expected}");
    }
}

/// No key is similar, so all are suggested.
#[test]
fn unknown_key_without_near_match_error_lists_all_keys() {
    for (text, known) in [
        ("zzzz: 2s\n", ["listen, web_config", ", root"]),
        (
            "thresholds: {zzzz: 1}\n",
            ["quota_used, quota_throttled", ", pool_threads"],
        ),
    ] {
        let error = from_yaml(text).expect_err(text);
        assert!(known.iter().all(|known| error.contains(known)), "{error}");
    }
}
