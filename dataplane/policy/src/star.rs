//! Names with `*` for any bytes.

/// Whether `name` fits the pattern. Goes back to the last star only, so the time is bounded by the product of the lengths.
pub(crate) fn fits(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut in_name) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while in_name < name.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, in_name));
                at += 1;
            }
            Some(&byte) if byte == name[in_name] => {
                at += 1;
                in_name += 1;
            }
            _ => {
                let Some((star_at, covered)) = star else { return false };
                star = Some((star_at, covered + 1));
                (at, in_name) = (star_at + 1, covered + 1);
            }
        }
    }
    pattern[at..].iter().all(|&byte| byte == b'*')
}
