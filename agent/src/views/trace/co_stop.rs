//! The co-stop of a trace, in one line.

use virtlens_model::timeline::{CoStop, Summary};

use super::text::{ratio, time};

/// The time in which some vCPUs ran while others waited; `None` for a VM with fewer than
/// two vCPUs.
pub(super) fn line(summary: &Summary) -> Option<String> {
    Some(text(summary.co_stop?, summary.took_ns))
}

fn text(co_stop: CoStop, took_ns: u64) -> String {
    let CoStop {
        time_ns,
        contended_ns,
        unknown_ns,
    } = co_stop;
    let share = 100.0 * ratio(time_ns, took_ns);
    let error = match unknown_ns {
        0 => String::new(),
        error_ns => format!(", error up to {}", time(error_ns)),
    };
    let waited = if contended_ns == time_ns {
        "waited".to_owned()
    } else {
        let contended = time(contended_ns);
        format!("waited for a CPU ({contended}) or were throttled")
    };
    let time = time(time_ns);
    format!("  co-stop {time} ({share:.1} %{error}): some vCPUs ran while others {waited}")
}

#[cfg(test)]
mod tests {
    use virtlens_model::timeline::CoStop;

    use super::text;

    #[test]
    fn co_stop_is_shown_with_its_error() {
        let line = |contended_ms: u64, unknown_ms: u64| {
            let co_stop = CoStop {
                time_ns: 500_000_000,
                contended_ns: contended_ms * 1_000_000,
                unknown_ns: unknown_ms * 1_000_000,
            };
            text(co_stop, 10_000_000_000)
        };
        assert_eq!(
            line(500, 0),
            "  co-stop 500.0 ms (5.0 %): some vCPUs ran while others waited"
        );
        assert_eq!(
            line(200, 3),
            "  co-stop 500.0 ms (5.0 %, error up to 3.0 ms): some vCPUs ran while others waited for \
             a CPU (200.0 ms) or were throttled"
        );
    }
}
