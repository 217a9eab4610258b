//! The parameters of requests to the API.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use jiff::Timestamp;

use crate::config::Span;
use crate::moment::{Moment, PAST_WINDOW, unix_ns};

/// The shortest interval of a stream. One that is shorter would keep the node's readings
/// from being shared.
const SHORTEST_INTERVAL: Duration = Duration::from_secs(1);
/// The longest interval of a stream.
const LONGEST_INTERVAL: Duration = Duration::from_mins(1);
const DEFAULT_INTERVAL: Duration = Duration::from_secs(5);

/// Number of readings of a history: an hour at the default interval of a recording.
const DEFAULT_LIMIT: usize = 360;
const MAX_LIMIT: usize = 3600;

const SHORTEST_TRACE: Duration = Duration::from_millis(100);
/// A longer trace does not fit into its file on a busy VM.
const LONGEST_TRACE: Duration = Duration::from_secs(30);
const DEFAULT_TRACE: Duration = Duration::from_secs(5);

/// Size of a trace, MiB.
const DEFAULT_TRACE_MIB: u64 = 16;
const MAX_TRACE_MIB: u64 = 64;

/// Parameters of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StreamQuery {
    /// The VM to show; `None` shows all.
    pub(super) vm: Option<String>,
    /// Time between two readings.
    pub(super) interval: Duration,
}

/// Parameters of a history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HistoryQuery {
    /// The VM to show; `None` shows all.
    pub(super) vm: Option<String>,
    /// Time of the readings, ns since 1970.
    pub(super) time: Range<u64>,
    /// Maximum number of readings.
    pub(super) limit: usize,
}

/// Parameters of a trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TraceQuery {
    /// The VM to trace.
    pub(super) vm: String,
    /// Duration.
    pub(super) length: Duration,
    /// Most bytes of the file, MiB.
    pub(super) max_mib: u64,
}

/// Checks that a request has no parameters.
pub(super) fn none(query: &str) -> Result<(), String> {
    parse(query, &[]).map(drop)
}

/// The VM that a request selects.
pub(super) fn vm(query: &str) -> Result<Option<String>, String> {
    let mut given = parse(query, &["vm"])?;
    Ok(given.remove("vm"))
}

/// Reads the parameters of a stream of readings that are cached for `min_age`.
pub(super) fn stream(query: &str, min_age: Duration) -> Result<StreamQuery, String> {
    let mut given = parse(query, &["vm", "interval"])?;
    let shortest = min_age.clamp(SHORTEST_INTERVAL, LONGEST_INTERVAL);
    let interval = match given.remove("interval") {
        None => DEFAULT_INTERVAL.max(shortest),
        Some(text) => {
            let Span(interval) = text
                .parse()
                .map_err(|error: String| format!("interval: {error}"))?;
            if !(shortest..=LONGEST_INTERVAL).contains(&interval) {
                return Err(format!(
                    "interval: expected {shortest:?} to {LONGEST_INTERVAL:?}, not {text}"
                ));
            }
            interval
        }
    };
    Ok(StreamQuery {
        vm: given.remove("vm"),
        interval,
    })
}

/// Reads the parameters of a history at the present time `now`.
pub(super) fn history(query: &str, now: Timestamp) -> Result<HistoryQuery, String> {
    let mut given = parse(query, &["vm", "since", "until", "limit"])?;
    let mut moment = |key: &str| -> Result<Option<u64>, String> {
        let Some(text) = given.remove(key) else {
            return Ok(None);
        };
        let moment: Moment = text
            .parse()
            .map_err(|error: String| format!("{key}: {error}"))?;
        Ok(Some(unix_ns(moment.instant(now))))
    };
    let until = moment("until")?.unwrap_or_else(|| unix_ns(now));
    let window = u64::try_from(PAST_WINDOW.as_nanos()).unwrap_or(u64::MAX);
    let since = moment("since")?.unwrap_or_else(|| until.saturating_sub(window));
    if since > until {
        return Err("since: expected a time before until".to_owned());
    }
    let limit = match given.remove("limit") {
        None => DEFAULT_LIMIT,
        Some(text) => {
            let limit = text.parse().ok();
            let limit = limit.filter(|limit| (1..=MAX_LIMIT).contains(limit));
            limit.ok_or_else(|| format!("limit: expected 1 to {MAX_LIMIT}, not {text:?}"))?
        }
    };
    Ok(HistoryQuery {
        vm: given.remove("vm"),
        time: since..until.saturating_add(1),
        limit,
    })
}

/// Reads the parameters of a trace.
pub(super) fn trace(query: &str) -> Result<TraceQuery, String> {
    let mut given = parse(query, &["vm", "for", "maxSize"])?;
    let length = match given.remove("for") {
        None => DEFAULT_TRACE,
        Some(text) => {
            let Span(length) = text
                .parse()
                .map_err(|error: String| format!("for: {error}"))?;
            if !(SHORTEST_TRACE..=LONGEST_TRACE).contains(&length) {
                return Err(format!(
                    "for: expected {SHORTEST_TRACE:?} to {LONGEST_TRACE:?}, not {text}"
                ));
            }
            length
        }
    };
    let max_mib = match given.remove("maxSize") {
        None => DEFAULT_TRACE_MIB,
        Some(text) => {
            let size = text.parse().ok();
            let size = size.filter(|size| (1..=MAX_TRACE_MIB).contains(size));
            size.ok_or_else(|| {
                format!("maxSize: expected 1 to {MAX_TRACE_MIB} (MiB), not {text:?}")
            })?
        }
    };
    let vm = given.remove("vm").filter(|vm| !vm.is_empty());
    Ok(TraceQuery {
        vm: vm.ok_or("vm: expected the VM to trace")?,
        length,
        max_mib,
    })
}

/// Checks a query string against each route that has parameters.
///
/// # Errors
///
/// A sentence, if no route accepts it.
pub fn check_query(query: &str) -> Result<(), String> {
    let now = Timestamp::UNIX_EPOCH;
    let stream = stream(query, Duration::ZERO).map(drop);
    let history = history(query, now).map(drop);
    let trace = trace(query).map(drop);
    vm(query).map(drop).or(stream).or(history).or(trace)
}

/// Splits and decodes a query string (`application/x-www-form-urlencoded`, as forms and
/// curl's `--data-urlencode` write it).
fn parse(query: &str, known: &[&'static str]) -> Result<BTreeMap<&'static str, String>, String> {
    let mut given = BTreeMap::new();
    for part in query.split('&').filter(|part| !part.is_empty()) {
        let (key, value) = part.split_once('=').unwrap_or((part, ""));
        let key = decode(key)?;
        let Some(key) = known.iter().find(|one| **one == key) else {
            return Err(match known {
                [] => format!("unknown parameter {key:?}; this path has none"),
                known => {
                    let known = known.join(", ");
                    format!("unknown parameter {key:?}; known parameters: {known}")
                }
            });
        };
        if given.insert(*key, decode(value)?).is_some() {
            return Err(format!("the parameter {key} is given twice"));
        }
    }
    Ok(given)
}

fn decode(text: &str) -> Result<String, String> {
    let bad = || format!("invalid percent-encoding in {text:?}");
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let mut digit = || {
                    let digit = char::from(rest.next()?).to_digit(16)?;
                    u8::try_from(digit).ok()
                };
                let (high, low) = digit().zip(digit()).ok_or_else(bad)?;
                high << 4 | low
            }
            other => other,
        });
    }
    String::from_utf8(bytes).map_err(|_| bad())
}

#[cfg(test)]
mod tests {
    use super::{Duration, Timestamp, TraceQuery, history, stream, trace, vm};

    const S: u64 = 1_000_000_000;

    fn now() -> Timestamp {
        Timestamp::from_second(100_000).expect("a time")
    }

    #[test]
    fn values_are_decoded() {
        for (query, expected) in [
            ("", None),
            ("&", None),
            ("vm=shop/web-0", Some("shop/web-0")),
            ("vm=shop%2Fweb-0&", Some("shop/web-0")),
            ("v%6d=a+b%2B%c3%a4", Some("a b+ä")),
            ("vm=a=b", Some("a=b")),
            ("vm", Some("")),
        ] {
            assert_eq!(vm(query), Ok(expected.map(str::to_owned)), "{query}");
        }
    }

    #[test]
    fn invalid_query_is_refused_with_a_sentence() {
        for (query, words) in [
            (
                "namespace=a",
                "unknown parameter \"namespace\"; known parameters: vm",
            ),
            ("vm=a&vm=b", "the parameter vm is given twice"),
            ("vm=%", "invalid percent-encoding in \"%\""),
            ("vm=%4", "invalid percent-encoding"),
            ("vm=%zz", "invalid percent-encoding"),
            ("vm=%+4", "invalid percent-encoding"),
            ("vm=%ff", "invalid percent-encoding"),
            ("interval=1s", "unknown parameter"),
        ] {
            let error = vm(query).expect_err(query);
            assert!(error.contains(words), "{query}: {error}");
        }
    }

    #[test]
    fn interval_of_stream_has_bounds() {
        let interval = |query: &str, min_age| {
            stream(query, Duration::from_secs(min_age)).map(|given| given.interval.as_secs())
        };
        assert_eq!(interval("", 1), Ok(5));
        assert_eq!(interval("", 20), Ok(20));
        assert_eq!(interval("", 3600), Ok(60));
        assert_eq!(interval("interval=1s", 0), Ok(1));
        assert_eq!(interval("interval=1m", 1), Ok(60));
        for (query, min_age) in [
            ("interval=999ms", 0),
            ("interval=61s", 1),
            ("interval=2s", 3),
            ("interval=", 1),
            ("interval=5", 1),
        ] {
            let error = interval(query, min_age).expect_err(query);
            assert!(error.starts_with("interval: "), "{error}");
        }
    }

    #[test]
    fn trace_has_a_vm_and_bounds() {
        let expected = |ms, max_mib| {
            let vm = "shop/web-0".to_owned();
            let length = Duration::from_millis(ms);
            Ok(TraceQuery {
                vm,
                length,
                max_mib,
            })
        };
        assert_eq!(trace("vm=shop/web-0"), expected(5000, 16));
        for (rest, ms, max_mib) in [
            ("for=100ms", 100, 16),
            ("for=30s&maxSize=64", 30_000, 64),
            ("maxSize=1", 5000, 1),
        ] {
            let query = format!("vm=shop/web-0&{rest}");
            assert_eq!(trace(&query), expected(ms, max_mib), "{query}");
        }
        for query in [
            "",
            "vm=",
            "vm=a&for=99ms",
            "vm=a&for=31s",
            "vm=a&for=5",
            "vm=a&maxSize=0",
            "vm=a&maxSize=65",
            "vm=a&maxSize=-1",
        ] {
            let error = trace(query).expect_err(query);
            assert!(
                error.contains(": expected") || error.contains("(expected"),
                "{error}"
            );
        }
    }

    #[test]
    fn history_has_default_time_and_bounds() {
        let time = |query: &str| history(query, now()).map(|given| given.time);
        assert_eq!(time(""), Ok(99_100 * S..100_000 * S + 1));
        assert_eq!(time("since=-1m"), Ok(99_940 * S..100_000 * S + 1));
        assert_eq!(
            time("since=2+min+ago&until=1970-01-02T03:46:00Z"),
            Ok(99_880 * S..99_960 * S + 1)
        );
        assert_eq!(time("until=-1h"), Ok(95_500 * S..96_400 * S + 1));
        let limit = |query: &str| history(query, now()).map(|given| given.limit);
        assert_eq!(limit(""), Ok(360));
        assert_eq!(limit("limit=3600"), Ok(3600));
        for query in [
            "limit=0",
            "limit=3601",
            "limit=-1",
            "since=-1m&until=-2m",
            "since=yesterday",
            "until=15m",
        ] {
            let error = limit(query).expect_err(query);
            assert!(
                error.contains(": expected") || error.contains("(expected"),
                "{error}"
            );
        }
    }
}
