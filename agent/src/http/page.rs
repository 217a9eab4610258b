//! The page /sources: version, node and the state of the sources.

use std::fmt::Write as _;

use virtlens_model::snapshot::{Snapshot, Source};

use crate::process::{REVISION, VERSION};
use crate::views::shortfall::running_vms;

const STYLE: &str = "\
:root{color-scheme:light dark}\
body{font:16px/1.5 system-ui,sans-serif;max-width:44rem;margin:2rem auto;padding:0 1rem}\
table{border-collapse:collapse;width:100%}\
th,td{text-align:left;vertical-align:top;padding:.3rem .8rem .3rem 0;border-bottom:1px solid #8884}\
.up{color:#18794e}.down{color:#c62a2a}\
@media(prefers-color-scheme:dark){.up{color:#4cc38a}.down{color:#ff8589}}";

/// Returns the page for one reading.
pub fn html(snapshot: &Snapshot) -> String {
    let node = &snapshot.node;
    let vms = running_vms(snapshot).map_or("unknown".to_owned(), |vms| vms.to_string());
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n\
         <title>virtlens on {name}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n\
         <h1>virtlens</h1>\n\
         <p>CPU time, throttling and memory of VM-isolated pods on this host.</p>\n\
         <p>Node <strong>{name}</strong>, Linux {kernel}, cgroup {cgroup}: \
         {vms} VMs on {cpus} CPUs. Version {VERSION}{revision}.</p>\n\
         <ul>\n<li><a href=\"/\">VMs of the node</a></li>\n\
         <li><a href=\"/metrics\">Metrics</a></li>\n\
         <li><a href=\"/api/v1/snapshot\">Snapshot as JSON</a> \
         (<a href=\"/api/v1/openapi.json\">API</a>)</li>\n\
         <li><a href=\"/healthz\">Health</a></li>\n\
         <li><a href=\"/readyz\">Readiness</a></li>\n</ul>\n",
        name = escape(&node.name),
        kernel = escape(&node.kernel),
        cgroup = node.cgroup,
        cpus = node.cpus,
        revision = if REVISION.is_empty() {
            String::new()
        } else {
            format!(" ({REVISION})")
        },
    );
    page.push_str(
        "<h2>Sources</h2>\n<table>\n\
         <tr><th>Source</th><th>State</th><th>Mode</th><th>Duration</th><th>Reason</th></tr>\n",
    );
    for source in &snapshot.sources {
        write_source(&mut page, source);
    }
    page.push_str("</table>\n</body>\n</html>\n");
    page
}

fn write_source(page: &mut String, source: &Source) {
    let state = if source.up { "up" } else { "down" };
    let took = source.duration_ns.map_or("-".to_owned(), |ns| {
        format!("{}.{:03} ms", ns / 1_000_000, ns / 1000 % 1000)
    });
    writeln!(
        page,
        "<tr><td>{}</td><td class=\"{state}\">{state}</td><td>{}</td><td>{took}</td><td>{}</td></tr>",
        escape(source.name),
        escape(source.mode),
        escape(&source.reason),
    )
    .expect("writing to a String cannot fail");
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::escape;

    #[test]
    fn names_are_escaped_in_html() {
        assert_eq!(escape("<a href=\"&\">"), "&lt;a href=&quot;&amp;&quot;&gt;");
    }
}
