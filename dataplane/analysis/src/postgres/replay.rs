//! An effect as a statement that repeats it in another session.

use super::effect::{Effect, Value};

impl Effect {
    /// Appends a statement without a semicolon that gives another session the setting, the role or the authorization
    /// of this effect; false, and nothing appended, if the effect is none of these or its value is not known. The
    /// statement is for a session: the scope is not repeated. A string in the value has the reading of the session
    /// that sent it.
    pub fn replay(&self, out: &mut Vec<u8>) -> bool {
        match self {
            Self::Set { name, value, .. } => setting(out, name, value),
            Self::SetRole { value: Value::Default, .. } => append(out, &[b"RESET ROLE"]),
            Self::SetRole { value, .. } => setting(out, b"role", value),
            Self::SetSessionAuthorization { value: Value::Default, .. } => {
                append(out, &[b"RESET SESSION AUTHORIZATION"])
            }
            Self::SetSessionAuthorization { value, .. } => setting(out, b"session_authorization", value),
            Self::Reset(name) => setting(out, name, &Value::Default),
            Self::ResetAll => append(out, &[b"RESET ALL"]),
            _ => false,
        }
    }
}

fn append(out: &mut Vec<u8>, parts: &[&[u8]]) -> bool {
    parts.iter().for_each(|part| out.extend_from_slice(part));
    true
}

fn setting(out: &mut Vec<u8>, name: &[u8], value: &Value) -> bool {
    match value {
        Value::Unknown => false,
        Value::Default => append(out, &[b"RESET ", &quoted(name)]),
        Value::Config(text) => {
            let name = doubled(name, b'\'');
            append(out, &[b"SELECT pg_catalog.set_config('", &name, b"', ", text, b", false)"])
        }
        // Only this command takes an interval.
        Value::Sql(text) if text.get(..8).is_some_and(|word| word.eq_ignore_ascii_case(b"interval")) => {
            append(out, &[b"SET TIME ZONE ", text])
        }
        Value::Sql(text) => append(out, &[b"SET ", &quoted(name), b" TO ", text]),
    }
}

/// `a.b` as `"a"."b"`: the dot separates the parts of the name of a setting.
fn quoted(name: &[u8]) -> Vec<u8> {
    let parts: Vec<_> = name.split(|&byte| byte == b'.').map(|part| doubled(part, b'"')).collect();
    let mut out = Vec::with_capacity(name.len() + 4);
    for (at, part) in parts.iter().enumerate() {
        let opening: &[u8] = if at == 0 { b"\"" } else { b".\"" };
        append(&mut out, &[opening, part, b"\""]);
    }
    out
}

fn doubled(bytes: &[u8], quote: u8) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    for &byte in bytes {
        out.extend(std::iter::repeat_n(byte, 1 + usize::from(byte == quote)));
    }
    out
}

#[cfg(test)]
mod tests {
    use crate::postgres::{Limits, analyse};

    fn replayed(text: &str) -> Option<String> {
        let analysis = analyse(text.as_bytes(), &Limits::default());
        let mut out = Vec::new();
        let is_replayed = analysis.statements[0].effects[0].replay(&mut out);
        assert_eq!(is_replayed, !out.is_empty());
        is_replayed.then(|| String::from_utf8(out).expect("UTF-8"))
    }

    #[test]
    fn settings_are_repeated_as_they_were_set() {
        for (text, expected) in [
            ("set work_mem = '1MB'", "SET \"work_mem\" TO '1MB'"),
            ("SET LOCAL a.\"b\"\"c\" TO d, e", "SET \"a\".\"b\"\"c\" TO d, e"),
            ("SET TIME ZONE interval '1' hour", "SET TIME ZONE interval '1' hour"),
            ("SET TIME ZONE -7.5", "SET \"timezone\" TO -7.5"),
            (
                "SELECT set_config('search_path', '\"A\", b', false)",
                "SELECT pg_catalog.set_config('search_path', '\"A\", b', false)",
            ),
            ("SET x TO DEFAULT", "RESET \"x\""),
            ("RESET x", "RESET \"x\""),
            ("RESET ALL", "RESET ALL"),
            ("SET ROLE alice", "SET \"role\" TO alice"),
            ("SET ROLE NONE", "RESET ROLE"),
            ("SET SESSION AUTHORIZATION 'bob'", "SET \"session_authorization\" TO 'bob'"),
            ("RESET SESSION AUTHORIZATION", "RESET SESSION AUTHORIZATION"),
        ] {
            assert_eq!(replayed(text).as_deref(), Some(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_setting_or_not_known_is_not_repeated() {
        for text in ["BEGIN", "SET x FROM CURRENT", "SELECT set_config('x', $1, false)", "LISTEN a", "DISCARD ALL"] {
            assert_eq!(replayed(text), None, "{text}");
        }
    }
}
