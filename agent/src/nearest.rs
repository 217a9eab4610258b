//! Known names that are offered for one that is not known.

/// Names offered at most.
const OFFERED: usize = 3;

/// From how alike on a name is offered, 0 to 1.
const ALIKE: f64 = 0.6;

/// Of the `known` names those most alike to `wanted`, the best first. Each name comes as
/// often as there are spellings for it: a spelling, and the name to offer.
pub(crate) fn nearest(
    wanted: &str,
    known: impl IntoIterator<Item = (String, String)>,
) -> Vec<String> {
    let wanted = wanted.to_lowercase();
    let alike = |spelling: &str| strsim::jaro_winkler(&spelling.to_lowercase(), &wanted);
    let mut names: Vec<(f64, String)> = known
        .into_iter()
        .map(|(spelling, name)| (alike(&spelling), name))
        .filter(|(alike, _)| *alike >= ALIKE)
        .collect();
    names.sort_by(|(a, one), (b, other)| b.total_cmp(a).then_with(|| one.cmp(other)));
    let mut offered: Vec<String> = Vec::with_capacity(OFFERED);
    for (_, name) in names {
        if offered.len() < OFFERED && !offered.contains(&name) {
            offered.push(name);
        }
    }
    offered
}
