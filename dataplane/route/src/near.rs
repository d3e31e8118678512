//! "Did you mean": the nearest known name. The configuration has the same for its keys; a room of the data plane cannot
//! ask it.

/// Names longer than this are not compared: none is that long, and the comparison is quadratic.
const NAME_BYTES_MAX: usize = 64;

/// The candidate nearest to `name` in any case, if it is near enough to be what was meant: one slip per three letters.
pub(crate) fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if name.len() > NAME_BYTES_MAX {
        return None;
    }
    let name = name.to_ascii_uppercase();
    let slips_max = (name.len() / 3).max(1);
    candidates
        .into_iter()
        .map(|candidate| (distance(name.as_bytes(), candidate.as_bytes()), candidate))
        .filter(|(slips, candidate)| *slips <= slips_max && *slips < candidate.len())
        .min_by_key(|(slips, _)| *slips)
        .map(|(_, candidate)| candidate)
}

/// Letters too many, missing, wrong, or swapped with their neighbour.
fn distance(a: &[u8], b: &[u8]) -> usize {
    let mut older = vec![0; b.len() + 1];
    let mut previous: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let replaced = previous[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            row[j] = replaced.min(previous[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(older[j - 2] + 1);
            }
        }
        older = std::mem::replace(&mut previous, row);
    }
    previous[b.len()]
}
