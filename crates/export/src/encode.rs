//! Encodes a scrape in a text format.
//!
//! A reading has its values already, so nothing is registered as a metric: the registry
//! would hold a second copy of each value, and series of VMs that have ended. A
//! [`Collector`] is prometheus-client's form for values that are read on each scrape, and
//! in a registry it must be boxed; its encoder has no public constructor (0.25,
//! `src/collector.rs`, `src/encoding/text.rs`). There is one collector per family, because
//! the encoder writes the `OpenMetrics` headers of a family before its series. The text
//! format has the same series under other headers, so this module drops the library's
//! headers and writes its own. Families without series are omitted.

use std::fmt::{self, Write};
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

use crate::families::families;
use crate::family::{Family, Rows};
use crate::format::Format;
use crate::kind::Kind;
use crate::prepared::Prepared;
use crate::samples::Samples;
use crate::scrape::Scrape;
use crate::selection::Selection;

/// Appends the selected families of `scrape` to `out`.
///
/// # Panics
///
/// Never: writing to a `String` cannot fail, and nothing else in the encoder can.
pub fn encode(scrape: &Arc<Scrape>, selection: &Selection, format: Format, out: &mut String) {
    let vms = scrape.snapshot.vms.iter().map(Prepared::of).collect();
    let scrape = Rendered {
        scrape: Arc::clone(scrape),
        vms,
    };
    for family in families().filter(|family| selection.has(family.name)) {
        encode_family(family, &scrape, format, out).expect("writing to a String cannot fail");
    }
    if format == Format::OpenMetrics {
        encode_eof(out).expect("writing to a String cannot fail");
    }
}

fn encode_family(
    family: &'static Family,
    scrape: &Rendered,
    format: Format,
    out: &mut String,
) -> fmt::Result {
    let start = out.len();
    let mut registry = Registry::default();
    registry.register_collector(Box::new(FamilyOfScrape {
        family,
        scrape: scrape.clone(),
    }));
    match format {
        Format::OpenMetrics => encode_registry(out, &registry)?,
        Format::Text => {
            write_text_header(family, out)?;
            let header_lines = if family.unit.is_some() { 3 } else { 2 };
            encode_registry(&mut AfterHeader { out, header_lines }, &registry)?;
        }
    }
    let last_line = out
        .trim_end_matches('\n')
        .rfind('\n')
        .map_or(0, |newline| newline + 1);
    let last_line = out.get(last_line.max(start)..).unwrap_or_default();
    if last_line.starts_with('#') {
        out.truncate(start);
    }
    Ok(())
}

/// Writes a family's `# HELP` and `# TYPE` lines. In the text format the header of a
/// counter carries the full series name, and an info has the type gauge.
fn write_text_header(family: &Family, out: &mut String) -> fmt::Result {
    let (name, help) = (family.name, family.help);
    let kind = match family.kind {
        Kind::Info => Kind::Gauge,
        kind => kind,
    };
    writeln!(out, "# HELP {name} {help}\n# TYPE {name} {}", kind.name())
}

/// Forwards the output after a family's header lines. The library writes the newline of
/// each header line in a separate call.
struct AfterHeader<'a> {
    out: &'a mut String,
    header_lines: u8,
}

impl Write for AfterHeader<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.header_lines == 0 {
            self.out.push_str(text);
        } else if text.ends_with('\n') {
            self.header_lines -= 1;
        }
        Ok(())
    }
}

/// A scrape, and the prepared data of its VMs in their order.
#[derive(Debug, Clone)]
struct Rendered {
    scrape: Arc<Scrape>,
    vms: Arc<[Prepared]>,
}

#[derive(Debug)]
struct FamilyOfScrape {
    family: &'static Family,
    scrape: Rendered,
}

impl Collector for FamilyOfScrape {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let family = self.family;
        let unit = family.unit.map(|unit| Unit::Other(unit.to_owned()));
        let metric_type = match family.kind {
            Kind::Counter => MetricType::Counter,
            Kind::Gauge => MetricType::Gauge,
            Kind::Info => MetricType::Info,
            Kind::Histogram => MetricType::Histogram,
        };
        let metric = encoder.encode_descriptor(
            family.base_name(),
            family.help,
            unit.as_ref(),
            metric_type,
        )?;
        let Rendered { scrape, vms } = &self.scrape;
        let mut samples = Samples {
            name: family.name,
            kind: family.kind,
            own_labels: family.own_labels,
            metric,
            node: &scrape.snapshot.node.name,
            vm: None,
        };
        match family.rows {
            Rows::Agent(rows) => rows(scrape, &mut samples),
            Rows::Vm(rows) => {
                let mut vms = scrape.snapshot.vms.iter().zip(&**vms);
                vms.try_for_each(|(vm, prepared)| {
                    samples.vm = Some((vm, prepared));
                    rows(vm, &mut samples)
                })
            }
        }
    }
}
