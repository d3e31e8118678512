//! Changes of headers, and the values of HAProxy in the words of Weir.

use crate::field;
use crate::toml::Value;

/// Expressions that Weir knows too.
const EXPRESSIONS: &[(&str, &str)] = &[
    ("src", "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%"),
    ("src_port", "%DOWNSTREAM_REMOTE_PORT%"),
    ("dst", "%DOWNSTREAM_LOCAL_ADDRESS_WITHOUT_PORT%"),
    ("dst_port", "%DOWNSTREAM_LOCAL_PORT%"),
    ("ssl_fc_protocol", "%DOWNSTREAM_TLS_VERSION%"),
    ("ssl_fc_cipher", "%DOWNSTREAM_TLS_CIPHER%"),
    ("hostname", "%HOSTNAME%"),
    ("be_name", "%UPSTREAM_CLUSTER%"),
];

/// `set-header NAME VALUE` and the like as a table of a route; `Err`: why not.
pub(super) fn change(words: &[String]) -> Result<Value, String> {
    let word = |at: usize| words.get(at).map_or("", String::as_str);
    let kind = match word(1) {
        "set-header" => "set",
        "add-header" => "add",
        "del-header" => "remove",
        other => return Err(format!("`{other}` is no change of a header")),
    };
    let value = if kind == "remove" { None } else { Some(translated(word(3))?) };
    field::change(kind, word(2), value)
}

/// A value with Weir's variables.
fn translated(value: &str) -> Result<String, String> {
    let mut out = String::new();
    let mut rest = value;
    while let Some((before, behind)) = rest.split_once('%') {
        out.push_str(before);
        let known = |name: &str| EXPRESSIONS.iter().find(|(known, _)| *known == name).map(|(_, word)| *word);
        if let Some(after) = behind.strip_prefix('%') {
            out.push_str("%%");
            rest = after;
        } else if let Some((inner, after)) = behind.strip_prefix('[').and_then(|inner| inner.split_once(']')) {
            let header = ["req.hdr(", "hdr("].iter().find_map(|prefix| inner.strip_prefix(prefix)?.strip_suffix(')'));
            match (known(inner), header.filter(|name| !name.contains(','))) {
                (Some(word), _) => out.push_str(word),
                (None, Some(name)) => out.push_str(&format!("%REQ({name})%")),
                (None, None) => return Err(format!("`%[{inner}]` is no variable of Weir")),
            }
            rest = after;
        } else if let Some(after) = behind.strip_prefix("ci") {
            out.push_str("%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%");
            rest = after;
        } else if let Some(after) = behind.strip_prefix("cp") {
            out.push_str("%DOWNSTREAM_REMOTE_PORT%");
            rest = after;
        } else {
            return Err(format!("`{value}` has a variable that Weir does not know"));
        }
    }
    out.push_str(rest);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_translated_or_refused() {
        assert_eq!(translated("a 100%% %[src]").as_deref(), Ok("a 100%% %DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%"));
        assert_eq!(translated("%[req.hdr(X-A)]b").as_deref(), Ok("%REQ(X-A)%b"));
        assert!(translated("%[uuid()]").is_err() && translated("%ms").is_err());
    }
}
