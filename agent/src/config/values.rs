//! Values of single settings, and their text forms.

use std::collections::BTreeSet;
use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

use serde::de::{Error, MapAccess, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};
use virtlens_model::judge::findings::Bounds;

use crate::config::keys::KnownKey;

/// An address to listen on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listen {
    /// All addresses of the host, IPv6 and IPv4: ":9877".
    Every(u16),
    /// One address: `127.0.0.1:9877`, `0.0.0.0:9877`, `[::]:9877`.
    At(SocketAddr),
}

impl Listen {
    /// The port; 0 selects a free port.
    pub fn port(self) -> u16 {
        match self {
            Self::Every(port) => port,
            Self::At(address) => address.port(),
        }
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Every(port) => write!(f, ":{port}"),
            Self::At(address) => address.fmt(f),
        }
    }
}

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let port = text.strip_prefix(':').and_then(|port| port.parse().ok());
        let address = || text.parse().ok().map(Self::At);
        port.map(Self::Every).or_else(address).ok_or_else(|| {
            format!(
                "invalid listen address {text:?} (expected a form like :9877, 0.0.0.0:9877 or \
                 [::1]:9877)"
            )
        })
    }
}

/// A duration: "500ms", "1s", "2m", "1h".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span(pub Duration);

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad =
            || format!("invalid duration {text:?} (expected a form like 500ms, 1s, 2m or 1h)");
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, unit) = text.split_at(digits);
        let number: u64 = number.parse().map_err(|_| bad())?;
        let unit_ms = match unit {
            "ms" => 1,
            "s" => 1000,
            "m" => 60_000,
            "h" => 3_600_000,
            _ => return Err(bad()),
        };
        number
            .checked_mul(unit_ms)
            .map(|ms| Self(Duration::from_millis(ms)))
            .ok_or_else(bad)
    }
}

/// Thresholds of findings, by name; unnamed ones keep their defaults.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Thresholds(pub Bounds);

impl<'de> Deserialize<'de> for Thresholds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ThresholdsVisitor)
    }
}

struct ThresholdsVisitor;

impl<'de> Visitor<'de> for ThresholdsVisitor {
    type Value = Thresholds;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("thresholds by name")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Thresholds, M::Error> {
        let known: Vec<&str> = Bounds::TABLE.iter().map(|bound| bound.name).collect();
        let key = || KnownKey {
            what: "threshold",
            known: &known,
        };
        let mut bounds = Bounds::default();
        while let Some(name) = map.next_key_seed(key())? {
            let value = map.next_value::<Threshold>()?.0;
            if let Some(bound) = bounds.get_mut(&name) {
                *bound = value;
            }
        }
        Ok(Thresholds(bounds))
    }
}

/// Value of a threshold. It is parsed within the deserializer, so that errors contain the
/// line.
struct Threshold(f64);

impl<'de> Deserialize<'de> for Threshold {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_f64(ThresholdVisitor)
    }
}

struct ThresholdVisitor;

impl Visitor<'_> for ThresholdVisitor {
    type Value = Threshold;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number above 0")
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Threshold, E> {
        if value > 0.0 && value.is_finite() {
            Ok(Threshold(value))
        } else {
            Err(E::invalid_value(Unexpected::Float(value), &self))
        }
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Threshold, E> {
        #[expect(clippy::cast_precision_loss, reason = "no threshold is so large")]
        self.visit_f64(value as f64)
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Threshold, E> {
        #[expect(clippy::cast_precision_loss, reason = "no threshold is so large")]
        self.visit_f64(value as f64)
    }
}

/// Authorization of requests, in addition to the web configuration.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum WebAuth {
    /// No further authorization.
    #[default]
    None,
    /// The API server authorizes bearer tokens.
    Kubernetes,
}

impl FromStr for WebAuth {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "none" => Ok(Self::None),
            "kubernetes" => Ok(Self::Kubernetes),
            _ => Err(format!(
                "unknown authorization {text:?} (expected none or kubernetes)"
            )),
        }
    }
}

/// Names of users, separated by commas.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Users(pub BTreeSet<String>);

impl FromStr for Users {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let names = text.split(',').map(str::trim);
        let names: BTreeSet<String> = names.map(str::to_owned).collect();
        if names.contains("") {
            return Err(format!(
                "invalid users {text:?} (expected names separated by commas)"
            ));
        }
        Ok(Self(names))
    }
}

/// Log format.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// `key=value` pairs, one event per line.
    #[default]
    Logfmt,
    /// One JSON object per line.
    Json,
}

impl FromStr for LogFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "logfmt" => Ok(Self::Logfmt),
            "json" => Ok(Self::Json),
            _ => Err(format!(
                "unknown log format {text:?} (expected logfmt or json)"
            )),
        }
    }
}

/// The lowest severity of logged events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogLevel(pub tracing::Level);

impl FromStr for LogLevel {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let level = match text {
            "error" => tracing::Level::ERROR,
            "warn" => tracing::Level::WARN,
            "info" => tracing::Level::INFO,
            "debug" => tracing::Level::DEBUG,
            _ => {
                return Err(format!(
                    "unknown log level {text:?} (expected error, warn, info or debug)"
                ));
            }
        };
        Ok(Self(level))
    }
}
