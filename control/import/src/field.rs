//! Changes of header fields, as a route can have them.

use crate::toml::Value;

/// Fields that frame messages or belong to a connection: only Weir itself writes them.
const FRAMING: [&str; 9] = [
    "connection",
    "content-length",
    "host",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// A change of the field `name`: `set`, `add` or `remove`, the last without a value.
///
/// # Errors
/// Why a route cannot say it.
pub(crate) fn change(kind: &str, name: &str, value: Option<String>) -> Result<Value, String> {
    if FRAMING.iter().any(|own| name.eq_ignore_ascii_case(own)) {
        return Err(format!("{name} is written by Weir itself, because it controls how messages are read"));
    }
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if name.is_empty() || !name.bytes().all(is_token) {
        return Err(format!("`{name}` is no name of a header"));
    }
    let mut entries = Vec::new();
    if kind != "set" {
        entries.push(("change".to_owned(), Value::text(kind)));
    }
    entries.push(("name".to_owned(), Value::text(name)));
    entries.extend(value.map(|value| ("value".to_owned(), Value::Text(value))));
    Ok(Value::Inline(entries))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_that_frame_messages_are_not_changed() {
        assert!(change("remove", "x-a", None).is_ok() && change("set", "X_a.b", Some("c".into())).is_ok());
        for name in ["Host", "content-length", "TE", "", "host)", "a b"] {
            assert!(change("set", name, Some(String::new())).is_err(), "{name}");
        }
    }
}
