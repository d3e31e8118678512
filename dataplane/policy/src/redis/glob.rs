//! Patterns as Redis matches them (Redis 7.0 `util.c`, `stringmatchlen`), to the byte: what a server allows and what the
//! gateway allows must be the same set of keys.

/// A pattern, with what can be known of it before a subject comes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Glob {
    text: Box<[u8]>,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// No character of the pattern is special.
    Exact,
    /// So many plain bytes, then stars only.
    Prefix(usize),
    Wild,
}

impl Glob {
    /// Looks at a pattern once.
    pub fn new(text: &[u8]) -> Self {
        let plain = text.iter().position(|byte| matches!(byte, b'*' | b'?' | b'[' | b'\\')).unwrap_or(text.len());
        let kind = match &text[plain..] {
            [] => Kind::Exact,
            rest if plain > 0 && rest.iter().all(|byte| *byte == b'*') => Kind::Prefix(plain),
            _ => Kind::Wild,
        };
        Self { text: text.into(), kind }
    }

    /// The pattern as it was written.
    pub fn text(&self) -> &[u8] {
        &self.text
    }

    /// Whether `subject` fits. Time grows with the product of both lengths at most; no recursion.
    #[inline]
    pub fn matches(&self, subject: &[u8]) -> bool {
        match self.kind {
            Kind::Exact => *self.text == *subject,
            Kind::Prefix(length) => subject.starts_with(&self.text[..length]),
            Kind::Wild => matches(&self.text, subject),
        }
    }
}

/// Redis goes back to the last star only: if what stands behind it fits nowhere, a longer match of an earlier star does
/// not help. Two quirks are kept: the empty string fits no star, and an open bracket ends with the pattern.
fn matches(pattern: &[u8], subject: &[u8]) -> bool {
    let (mut at, mut byte) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    loop {
        if at < pattern.len() && byte < subject.len() {
            if pattern[at] == b'*' {
                at += pattern[at..].iter().take_while(|char| **char == b'*').count();
                if at == pattern.len() {
                    return true;
                }
                star = Some((at, byte));
                continue;
            }
            if let Some(next) = element(pattern, at, subject[byte]) {
                at = next;
                byte += 1;
                if byte < subject.len() {
                    continue;
                }
                at += pattern[at..].iter().take_while(|char| **char == b'*').count();
            }
        }
        if at == pattern.len() && byte == subject.len() {
            return true;
        }
        match star {
            Some((behind, from)) if from + 1 < subject.len() => {
                star = Some((behind, from + 1));
                (at, byte) = (behind, from + 1);
            }
            _ => return false,
        }
    }
}

/// One element of the pattern against one byte: where the next element begins, if it fits.
fn element(pattern: &[u8], at: usize, byte: u8) -> Option<usize> {
    match pattern[at] {
        b'?' => Some(at + 1),
        b'[' => {
            let (fits, end) = class(pattern, at + 1, byte);
            fits.then_some(end)
        }
        b'\\' if at + 1 < pattern.len() => (pattern[at + 1] == byte).then_some(at + 2),
        plain => (plain == byte).then_some(at + 1),
    }
}

/// Matches a bracket expression, from behind its opening bracket: whether `byte` fits, and where the pattern goes on.
fn class(pattern: &[u8], mut at: usize, byte: u8) -> (bool, usize) {
    // Characters are signed to the servers, which matters for ranges only.
    let signed = |byte: u8| byte as i8;
    let is_negated = pattern.get(at) == Some(&b'^');
    at += usize::from(is_negated);
    let mut fits = false;
    loop {
        match pattern.get(at..).unwrap_or_default() {
            [] => break,
            [b'\\', escaped, ..] => {
                fits |= *escaped == byte;
                at += 2;
            }
            [b']', ..] => {
                at += 1;
                break;
            }
            [start, b'-', end, ..] => {
                let (low, high) = (signed(*start).min(signed(*end)), signed(*start).max(signed(*end)));
                fits |= (low..=high).contains(&signed(byte));
                at += 3;
            }
            [plain, ..] => {
                fits |= *plain == byte;
                at += 1;
            }
        }
    }
    (fits != is_negated, at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// `stringmatchlen_impl` of Redis 7.0.15, line by line, reading a NUL behind the end as C does.
    fn reference(mut p: &[u8], mut s: &[u8], skip: &mut bool) -> bool {
        let at = |p: &[u8], index: usize| p.get(index).copied().unwrap_or(0);
        while !p.is_empty() && !s.is_empty() {
            match p[0] {
                b'*' => {
                    while !p.is_empty() && at(p, 1) == b'*' {
                        p = &p[1..];
                    }
                    if p.len() == 1 {
                        return true;
                    }
                    while !s.is_empty() {
                        if reference(&p[1..], s, skip) {
                            return true;
                        }
                        if *skip {
                            return false;
                        }
                        s = &s[1..];
                    }
                    *skip = true;
                    return false;
                }
                b'?' => s = &s[1..],
                b'[' => {
                    let mut i = 1;
                    let not = at(p, i) == b'^';
                    i += usize::from(not);
                    let mut fits = false;
                    loop {
                        let left = p.len() as isize - i as isize;
                        if at(p, i) == b'\\' && left >= 2 {
                            i += 1;
                            fits |= at(p, i) == s[0];
                        } else if at(p, i) == b']' {
                            break;
                        } else if left == 0 {
                            i -= 1;
                            break;
                        } else if left >= 3 && at(p, i + 1) == b'-' {
                            let (start, end) = (at(p, i) as i8, at(p, i + 2) as i8);
                            let (start, end) = (start.min(end), start.max(end));
                            i += 2;
                            fits |= (start..=end).contains(&(s[0] as i8));
                        } else {
                            fits |= at(p, i) == s[0];
                        }
                        i += 1;
                    }
                    if fits == not {
                        return false;
                    }
                    s = &s[1..];
                    p = &p[i..];
                }
                first => {
                    let mut plain = first;
                    if first == b'\\' && p.len() >= 2 {
                        p = &p[1..];
                        plain = p[0];
                    }
                    if plain != s[0] {
                        return false;
                    }
                    s = &s[1..];
                }
            }
            p = &p[1..];
            if s.is_empty() {
                while at(p, 0) == b'*' {
                    p = &p[1..];
                }
                break;
            }
        }
        p.is_empty() && s.is_empty()
    }

    #[test]
    fn patterns_of_every_kind_fit_as_in_redis() {
        let cases: &[(&str, &str, bool)] = &[
            ("app:*", "app:", true),
            ("app:*", "app:1", true),
            ("app:*", "ap", false),
            ("*", "", false),
            ("", "", true),
            ("a", "a", true),
            ("h?llo", "hello", true),
            ("h[^e]llo", "hello", false),
            ("h[a-c]llo", "hbllo", true),
            ("h[c-a]llo", "hbllo", true),
            ("a[", "a[", false),
            ("a[b", "ab", true),
            ("\\*", "*", true),
            ("\\", "\\", true),
            ("*a*b*c", "xaybzcwc", true),
            ("*a*b*c", "xaybzcw", false),
            ("[\\]]", "]", true),
        ];
        for (pattern, subject, expected) in cases {
            assert_eq!(Glob::new(pattern.as_bytes()).matches(subject.as_bytes()), *expected, "{pattern} {subject}");
        }
    }

    #[test]
    fn stars_without_end_take_no_time_without_end() {
        let pattern = "*a".repeat(500) + "b";
        let subject = "a".repeat(5_000);
        assert!(!Glob::new(pattern.as_bytes()).matches(subject.as_bytes()));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]
        #[test]
        fn matching_agrees_with_the_code_of_redis(pattern in r"[ab*?\[\]^\\\-\x80]{0,10}", subject in r"[ab\[\]\-\x80^\\]{0,8}") {
            let expected = reference(pattern.as_bytes(), subject.as_bytes(), &mut false);
            prop_assert_eq!(Glob::new(pattern.as_bytes()).matches(subject.as_bytes()), expected);
        }
    }
}
