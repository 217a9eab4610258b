//! Suggests known names for an unknown one.

/// Limit on suggestions.
const OFFERED: usize = 3;

/// Minimum similarity of a suggestion, 0 to 1.
const ALIKE: f64 = 0.6;

/// Returns the `known` names most similar to `wanted`, best first. A name occurs once for
/// each of its spellings, as a pair of the spelling and the name to suggest.
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
