//! "Did you mean": the known word nearest to one that is not known.

/// Words longer than this are not compared: no key or name is that long, and the comparison is quadratic.
const WORD_BYTES_MAX: usize = 64;

/// The candidate nearest to `word`, if it is near enough to be what was meant: one slip per three letters.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if word.len() > WORD_BYTES_MAX {
        return None;
    }
    let slips_max = (word.chars().count() / 3).max(1);
    candidates
        .into_iter()
        .map(|candidate| (distance(word, candidate), candidate))
        .filter(|(slips, _)| *slips <= slips_max)
        .min_by_key(|(slips, _)| *slips)
        .map(|(_, candidate)| candidate)
}

/// Slips between two words: a letter too many, missing or wrong, or two swapped (optimal string alignment distance).
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut older = vec![0; b.len() + 1];
    let mut previous: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let replaced = previous[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            row[j] = replaced.min(previous[j] + 1).min(row[j - 1] + 1);
            let swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
            if swapped {
                row[j] = row[j].min(older[j - 2] + 1);
            }
        }
        older = std::mem::replace(&mut previous, row);
    }
    previous[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_count_slips() {
        for (a, b, slips) in [
            ("", "", 0),
            ("", "abc", 3),
            ("bind", "bind", 0),
            ("bnid", "bind", 1),
            ("bin", "bind", 1),
            ("conections", "connections", 1),
            ("kitten", "sitting", 3),
        ] {
            assert_eq!(distance(a, b), slips, "{a} {b}");
            assert_eq!(distance(b, a), slips, "{b} {a}");
        }
    }

    #[test]
    fn only_near_words_are_offered() {
        let keys = ["bind", "protocol", "upstream", "connections"];
        assert_eq!(nearest("upstraem", keys), Some("upstream"));
        assert_eq!(nearest("bnd", keys), Some("bind"));
        assert_eq!(nearest("port", keys), None);
        assert_eq!(nearest("x", keys), None);
        assert_eq!(nearest(&"b".repeat(100_000), keys), None);
    }
}
