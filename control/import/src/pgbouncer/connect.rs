//! Connection strings: `host=a port=1 password='it''s'`.

use super::ini::unquoted;

/// The pairs of a connection string.
///
/// # Errors
/// A mistake, in words that repeat nothing of the text: it may be a part of a password.
pub(super) fn pairs(text: &str) -> Result<Vec<(&str, String)>, &'static str> {
    let mut pairs = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let (key, behind) = rest.split_once('=').ok_or("a parameter has no `=`")?;
        let key = key.trim_end();
        if key.is_empty() || key.contains(char::is_whitespace) {
            return Err("a parameter has no `=`");
        }
        let behind = behind.trim_start();
        let (value, behind) = match behind.strip_prefix('\'') {
            Some(quoted) => unquoted(quoted, '\'').ok_or("a value has no second quote")?,
            None => {
                let end = behind.find(char::is_whitespace).unwrap_or(behind.len());
                (behind[..end].to_owned(), &behind[end..])
            }
        };
        if value.is_empty() {
            return Err("a parameter has no value");
        }
        if !behind.is_empty() && !behind.starts_with(char::is_whitespace) {
            return Err("a quoted value has something behind it");
        }
        pairs.push((key, value));
        rest = behind.trim_start();
    }
    Ok(pairs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_quoted_as_in_sql() {
        let pairs = pairs("host=a  password = 'it''s = b' port=1").expect("pairs");
        let wanted = [("host", "a"), ("password", "it's = b"), ("port", "1")];
        assert!(pairs.iter().map(|(key, value)| (*key, &**value)).eq(wanted), "{pairs:?}");
    }

    #[test]
    fn mistakes_repeat_nothing() {
        for text in ["host", "host=", "host='a", "host='a'b", "=a", "password=a canary", "a canary=b"] {
            let mistake = pairs(text).expect_err(text);
            assert!(!mistake.contains("canary"), "{mistake}");
        }
    }
}
