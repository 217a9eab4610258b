//! The usage of a CPU limit as a bar of roles, in SVG.

use crate::usage::Usage;

/// Width of the picture, px; all other lengths are px, too.
const WIDTH: f64 = 800.0;

/// Space on the left and on the right.
const MARGIN: f64 = 24.0;

/// Top and height of the bar.
const BAR: (f64, f64) = (84.0, 52.0);

/// Height of a row of text.
const ROW: f64 = 24.0;

/// Width of a part of the bar that has room for the name of its role.
const LABELLED: f64 = 90.0;

/// The part of the width that the limit or the usage takes, whichever is more.
const FILLED: f64 = 0.92;

/// Fill and text colour of each role: the palette of Okabe and Ito, which colour-blind
/// readers can distinguish.
const COLORS: [(&str, &str, &str); 7] = [
    ("vcpu", "#0072b2", "#ffffff"),
    ("vhost", "#e69f00", "#000000"),
    ("virtiofsd", "#009e73", "#000000"),
    ("iothread", "#cc79a7", "#000000"),
    ("emulator", "#56b4e9", "#000000"),
    ("helper", "#f0e442", "#000000"),
    ("unattributed", "#999999", "#000000"),
];

/// The picture has its own background, since the page's may be light or dark.
const STYLE: &str = "
text { font: 15px system-ui, sans-serif }
.head { font-weight: bold }
.number { text-anchor: end }
.page { fill: #ffffff; stroke: #d0d7de }
.ink { fill: #1f2328 }
.faint { fill: #59636e }
.limit { stroke: #cf222e; stroke-width: 3 }
@media (prefers-color-scheme: dark) {
  .page { fill: #0d1117; stroke: #3d444d }
  .ink { fill: #f0f6fc }
  .faint { fill: #9198a1 }
  .limit { stroke: #ff7b72 }
}
";

/// Draws the usage.
pub(crate) fn svg(usage: &Usage) -> String {
    let used: f64 = usage.roles.iter().map(|(_, cores)| cores).sum();
    let limit = usage.limit_cores;
    let title = format!(
        "{}: {used:.2} of {limit:.2} cores used, throttled {:.0} % of the time",
        usage.pod,
        usage.throttled * 100.0
    );
    let source = format!(
        "{}; {:.0} s on a machine of tests/vm",
        usage.node, usage.seconds
    );
    let scale = (WIDTH - 2.0 * MARGIN) * FILLED / limit.max(used);
    let mut parts = vec![text(MARGIN, 36.0, "ink head", &title)];
    bar(usage, scale, &mut parts);
    let height = rows(usage, &mut parts) + 52.0;
    parts.push(text(MARGIN, height - 18.0, "faint", &source));
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         width=\"{WIDTH}\" height=\"{height}\" role=\"img\">\n\
         <title>{title}</title>\n<style>{STYLE}</style>\n\
         <rect class=\"page\" width=\"{WIDTH}\" height=\"{height}\" rx=\"8\"/>\n\
         {}\n</svg>\n",
        parts.join("\n")
    )
}

/// The bar, `scale` px per core, and the limit.
fn bar(usage: &Usage, scale: f64, parts: &mut Vec<String>) {
    let (top, height) = BAR;
    let mut x = MARGIN;
    for (role, cores) in &usage.roles {
        let (fill, ink) = color(role);
        let width = cores * scale;
        // The gap separates neighbours of similar brightness.
        parts.push(rect([x, top, (width - 1.0).max(0.0), height], fill));
        if width > LABELLED {
            let (x, y) = (x + 8.0, top + 31.0);
            parts.push(format!(
                "<text x=\"{x:.1}\" y=\"{y}\" fill=\"{ink}\">{role}</text>"
            ));
        }
        x += width;
    }
    let limit = usage.limit_cores;
    let (x, above, below) = (MARGIN + limit * scale, top - 10.0, top + height + 10.0);
    parts.push(format!(
        "<line class=\"limit\" x1=\"{x:.1}\" y1=\"{above}\" x2=\"{x:.1}\" y2=\"{below}\"/>"
    ));
    let label = format!("limit {limit:.2} cores");
    parts.push(text(x + 2.0, above - 8.0, "ink number", &label));
}

/// A row for each role, below the bar; returns the position of the last row.
fn rows(usage: &Usage, parts: &mut Vec<String>) -> f64 {
    let mut y = BAR.0 + BAR.1 + 16.0;
    for (role, cores) in &usage.roles {
        y += ROW;
        let (fill, _) = color(role);
        let share = cores / usage.limit_cores * 100.0;
        parts.push(rect([MARGIN, y - 12.0, 14.0, 14.0], fill));
        parts.push(text(MARGIN + 24.0, y, "ink", role));
        parts.push(text(250.0, y, "ink number", &format!("{cores:.2} cores")));
        let share = format!("{share:.1} % of the limit");
        parts.push(text(420.0, y, "ink number", &share));
    }
    y
}

fn rect([x, y, width, height]: [f64; 4], fill: &str) -> String {
    format!(
        "<rect x=\"{x:.1}\" y=\"{y}\" width=\"{width:.1}\" height=\"{height}\" fill=\"{fill}\"/>"
    )
}

fn text(x: f64, y: f64, class: &str, content: &str) -> String {
    format!("<text x=\"{x:.1}\" y=\"{y}\" class=\"{class}\">{content}</text>")
}

/// Colours of the area of a role and of text on it.
fn color(role: &str) -> (&'static str, &'static str) {
    let found = COLORS.iter().find(|(name, _, _)| *name == role);
    let (_, fill, ink) = found.unwrap_or_else(|| panic!("{role} has no colour"));
    (fill, ink)
}
