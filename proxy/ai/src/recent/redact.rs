//! Secrets in a body that is kept, by the words around them.
//!
//! | secret | recognised by |
//! |---|---|
//! | the key of the client, and that of the provider | their texts |
//! | keys and tokens of others | the beginning of their text, as in `sk-...`, and at least 16 characters |
//! | texts of JSON | the name of their member, as in `"password"`, also within a string |
//!
//! A secret that has none of these signs, or that comes in pieces, stays.

/// In the place of a secret. As [`Secret`](weir_base::Secret) prints.
const MARK: &[u8] = b"[redacted]";

/// The beginnings of keys and tokens: of OpenAI, Anthropic and Stripe, GitHub, GitLab, Slack, AWS, Google, Hugging Face, JWT, and of
/// header fields.
const BEGINNINGS: [&[u8]; 20] = [
    b"sk-",
    b"sk_",
    b"rk_",
    b"pk_",
    b"ghp_",
    b"gho_",
    b"ghu_",
    b"ghs_",
    b"github_pat_",
    b"glpat-",
    b"xoxb-",
    b"xoxp-",
    b"xapp-",
    b"AKIA",
    b"ASIA",
    b"AIza",
    b"ya29.",
    b"hf_",
    b"eyJ",
    b"Bearer ",
];

/// Characters of a token behind its beginning. Default 16; the keys of providers have 30 and more.
const TOKEN_BYTES_MIN: usize = 16;

/// Bytes of a key that a cut has left, from which on they are taken for it.
const PART_BYTES_MIN: usize = 8;

/// The ends of names of members whose values are secrets, in lower case, without `-` and `_`.
const SECRET_NAMES: [&str; 12] = [
    "authorization",
    "authorizationtoken",
    "apikey",
    "accesskey",
    "accesstoken",
    "refreshtoken",
    "authtoken",
    "secret",
    "secretkey",
    "privatekey",
    "password",
    "cookie",
];

/// Bytes of the name of a member.
const NAME_BYTES_MAX: usize = 64;

/// Backslashes in front of a quote. Default 7, those of a string in a string in a string; a longer run, which costs no more for it, has no
/// members.
const DEPTH_MAX: usize = 7;

/// A text without its secrets. `known`: secrets of this exchange; an empty one is none. `is_cut`: the text goes on, and is not here.
pub(super) fn redacted(text: &[u8], known: &[&[u8]], is_cut: bool) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut at = 0;
    let secrets = Secrets::new(known, is_cut);
    // The value of the member whose name has begun: a secret may stand in the name as well.
    let mut value = None;
    while at < text.len() {
        let rest = &text[at..];
        if let Some((_, end)) = value.take_if(|(begin, _)| *begin <= at) {
            out.extend_from_slice(MARK);
            at = at.max(end);
        } else if let Some(length) = secrets.length_at(text, at) {
            out.extend_from_slice(MARK);
            at += length;
        } else {
            let of_member = || member(rest).map(|(begin, length)| (at + begin, at + begin + length));
            value = value.or_else(of_member);
            out.push(rest[0]);
            at += 1;
        }
    }
    out
}

/// The secrets of an exchange, and the beginnings of others.
struct Secrets<'a> {
    known: &'a [&'a [u8]],
    /// The bytes with which known ones begin: there may be a key of each provider, and few begin with the byte at a place.
    begins: [bool; 256],
    is_cut: bool,
}

impl<'a> Secrets<'a> {
    fn new(known: &'a [&'a [u8]], is_cut: bool) -> Self {
        let mut begins = [false; 256];
        known.iter().filter_map(|secret| secret.first()).for_each(|byte| begins[usize::from(*byte)] = true);
        Self { known, begins, is_cut }
    }

    /// The length of the longest secret at this place. A known one may begin within it and go on behind it, as a key with a colon does
    /// behind `Bearer`.
    fn length_at(&self, text: &[u8], at: usize) -> Option<usize> {
        let mut length = self.known_at(&text[at..]).max(token(text, at, self.is_cut))?;
        let mut within = 1;
        while within < length {
            length = length.max(self.known_at(&text[at + within..]).map_or(0, |known| within + known));
            within += 1;
        }
        Some(length)
    }

    /// The length of the longest known secret at the beginning of a text, or of its part in front of a cut.
    fn known_at(&self, text: &[u8]) -> Option<usize> {
        let begins = text.first().is_some_and(|byte| self.begins[usize::from(*byte)]);
        begins.then_some(())?;
        let is_part = |secret: &[u8]| self.is_cut && text.len() >= PART_BYTES_MIN && secret.starts_with(text);
        let found =
            self.known.iter().filter(|secret| !secret.is_empty() && (text.starts_with(secret) || is_part(secret)));
        found.map(|secret| secret.len().min(text.len())).max()
    }
}

/// The length of a token at this place.
fn token(text: &[u8], at: usize, is_cut: bool) -> Option<usize> {
    let is_within = at > 0 && text[at - 1].is_ascii_alphanumeric();
    let rest = &text[at..];
    let beginning = BEGINNINGS.iter().find(|beginning| rest.starts_with(beginning)).filter(|_| !is_within)?;
    let is_of_token = |byte: &&u8| byte.is_ascii_alphanumeric() || b"-_.~+/=".contains(byte);
    let behind = rest[beginning.len()..].iter().take_while(is_of_token).count();
    let length = beginning.len() + behind;
    let is_long = behind >= TOKEN_BYTES_MIN || is_cut && length == rest.len();
    is_long.then_some(length)
}

/// The place and length of the value of a member that begins here with the quote of its name, if it is a secret.
fn member(text: &[u8]) -> Option<(usize, usize)> {
    let depth = text.iter().take(DEPTH_MAX + 1).take_while(|byte| **byte == b'\\').count();
    let quote = depth + 1;
    (text.get(depth) == Some(&b'"')).then_some(())?;
    let name = &text[quote..text.len().min(quote + NAME_BYTES_MAX)];
    let name = &name[..name.iter().position(|byte| matches!(byte, b'"' | b'\\'))?];
    is_secret(name).then_some(())?;
    let blank = |at: usize| at + text[at..].iter().take_while(|byte| byte.is_ascii_whitespace()).count();
    let colon = blank(behind_quote(text, quote + name.len(), depth)?);
    (text.get(colon) == Some(&b':')).then_some(())?;
    let begin = behind_quote(text, blank(colon + 1), depth)?;
    Some((begin, end_of_string(&text[begin..], depth)))
}

/// The place behind a quote with so many backslashes.
fn behind_quote(text: &[u8], at: usize, depth: usize) -> Option<usize> {
    let rest = text.get(at..)?;
    let (backslashes, behind) = rest.split_at_checked(depth)?;
    (backslashes.iter().all(|byte| *byte == b'\\') && behind.first() == Some(&b'"')).then_some(at + depth + 1)
}

/// Bytes in front of the quote that ends a string, or of the end of the text. Each string around it doubles the backslashes: with `depth` of
/// them a quote ends it, behind any number of whole ones of its own. With fewer, a string around it ends.
fn end_of_string(text: &[u8], depth: usize) -> usize {
    let mut backslashes: usize = 0;
    for (at, byte) in text.iter().enumerate() {
        match byte {
            b'"' if backslashes < depth || (backslashes - depth).is_multiple_of(2 * (depth + 1)) => {
                return at - backslashes.min(depth);
            }
            b'\\' => backslashes += 1,
            _ => backslashes = 0,
        }
    }
    text.len()
}

fn is_secret(name: &[u8]) -> bool {
    let letters = name.iter().filter(|byte| !matches!(byte, b'-' | b'_'));
    let name: Vec<u8> = letters.map(u8::to_ascii_lowercase).collect();
    SECRET_NAMES.iter().any(|secret| name.ends_with(secret.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &[u8] = b"sk-weir-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

    fn shown(text: &str, is_cut: bool) -> String {
        String::from_utf8(redacted(text.as_bytes(), &[b"provider-key-of-the-operator", b""], is_cut)).expect("UTF-8")
    }

    #[test]
    fn a_text_without_secrets_stays_as_it_is() {
        for text in [
            "",
            r#"{"model":"m","messages":[{"role":"user","content":"a \"quoted\" \\ text, sk-learn, Bearer of news"}]}"#,
            r#"{"logprobs":[{"token":"secret","bytes":[1]}],"max_tokens":5,"keyboard":"x"}"#,
            "data: {\"usage\":null}\n\ndata: [DONE]\n\n",
            "\u{4f60}\u{597d}",
        ] {
            assert_eq!(shown(text, false), text);
        }
    }

    #[test]
    fn keys_of_the_exchange_and_tokens_are_marked() {
        for (text, wanted) in [
            ("use provider-key-of-the-operator now", "use [redacted] now"),
            ("key=sk-weir-aaaaaaaaaaaaaaaaaaaaaaaa, x", "key=[redacted], x"),
            ("Authorization: Bearer abcdefghijklmnop12\\n", "Authorization: [redacted]\\n"),
            ("ghp_0123456789abcdefghij", "[redacted]"),
            ("task-0123456789abcdefghij", "task-0123456789abcdefghij"),
            ("\"eyJhbGciOiJIUzI1NiJ9.e30.x\"", "\"[redacted]\""),
        ] {
            assert_eq!(shown(text, false), wanted);
        }
    }

    #[test]
    fn a_short_secret_hides_no_longer_one_that_begins_like_it() {
        let known: &[&[u8]] = &[b"x", b"key-a", b"key-a-of-another", b"abcdefghijklmnop1234:rest"];
        for (text, wanted) in [
            ("a xoxb-0123456789abcdefghij b", "a [redacted] b"),
            ("a key-a-of-another b", "a [redacted] b"),
            ("a key-a b", "a [redacted] b"),
            ("Bearer abcdefghijklmnop1234:rest b", "[redacted] b"),
        ] {
            assert_eq!(redacted(text.as_bytes(), known, false), wanted.as_bytes(), "{text}");
        }
    }

    #[test]
    fn members_with_names_of_secrets_lose_their_values() {
        for (text, wanted) in [
            (r#"{"authorization_token": "a","x":1}"#, r#"{"authorization_token": "[redacted]","x":1}"#),
            (r#"{"X-Api-Key":"a \" b"}"#, r#"{"X-Api-Key":"[redacted]"}"#),
            (r#"{"secret":"a\\","x":"y"}"#, r#"{"secret":"[redacted]","x":"y"}"#),
            (r#"{"db_password" : ""}"#, r#"{"db_password" : "[redacted]"}"#),
            (
                r#"{"arguments":"{\"password\":\"a\\\"b\",\"y\":2}"}"#,
                r#"{"arguments":"{\"password\":\"[redacted]\",\"y\":2}"}"#,
            ),
            (r#"{"provider-key-of-the-operator-password":"a"}"#, r#"{"[redacted]-password":"[redacted]"}"#),
            (r#"{"client_secret":"cut he"#, r#"{"client_secret":"[redacted]"#),
            (r#"{"password":{"type":"string"}}"#, r#"{"password":{"type":"string"}}"#),
        ] {
            assert_eq!(shown(text, false), wanted);
        }
    }

    #[test]
    fn a_secret_that_the_end_cuts_is_marked() {
        assert_eq!(shown("a provider-key-o", true), "a [redacted]");
        assert_eq!(shown("a provider-key-o", false), "a provider-key-o");
        assert_eq!(shown("a sk-we", true), "a [redacted]");
        assert_eq!(shown("a sk-we", false), "a sk-we");
        // Wherever the end is, no more than the beginning of a key is left.
        let text = [b"{\"content\":\"", KEY, b"\"}"].concat();
        for end in 0..text.len() {
            let left = redacted(&text[..end], &[KEY], true);
            assert!(!left.windows(4).any(|part| part == b"weir"), "{}", String::from_utf8_lossy(&left));
        }
    }

    #[test]
    fn no_text_keeps_a_known_secret_or_stops_the_worker() {
        let parts = [
            "\\",
            "\"",
            ":",
            " ",
            "password",
            "sk-",
            "Bearer ",
            "known-secret",
            "{",
            "}",
            "\u{e4}",
            "abcdefghijklmnopq",
        ];
        let mut rng = weir_base::Rng::new(7);
        for _ in 0..20_000 {
            let count = 1 + rng.below(12);
            let text: String = (0..count).map(|_| parts[rng.below(parts.len() as u64) as usize]).collect();
            let left = redacted(text.as_bytes(), &[b"known-secret"], rng.below(2) == 0);
            let left = String::from_utf8(left).expect("characters stay whole");
            assert!(!left.contains("known-secret"), "{text}: {left}");
        }
        // Each byte is looked at a few times: 64 KiB of the worst take milliseconds, and a square of them would take minutes.
        let begun = std::time::Instant::now();
        let known: [&[u8]; 3] = [b"known-secret", b"aaaaaaaaaaaaaaab", b"aaaaaaaaaaaaaaac"];
        for worst in ["\\", "\"password\" ", "sk-", "\"password\":\"\\\"", "Bearer ", "a"] {
            let text = format!("Bearer {}", worst.repeat((64 << 10) / worst.len()));
            redacted(text.as_bytes(), &known, true);
        }
        assert!(begun.elapsed() < std::time::Duration::from_secs(20), "{:?}", begun.elapsed());
    }
}
