//! Changes to the cookies that origins set.

use weir_http_codec::{Fields, Known};

/// Changes to one cookie. A part that is `None` stays.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CookieChange {
    /// Its name; cases count.
    pub name: Box<str>,
    /// Another Path.
    pub path: Option<Box<str>>,
    /// Another Domain; empty: none, so that it is the host's alone.
    pub domain: Option<Box<str>>,
    /// With or without Secure.
    pub secure: Option<bool>,
    /// Another SameSite: `Strict`, `Lax` or `None`.
    pub same_site: Option<&'static str>,
}

/// Makes the changes in a response.
pub(crate) fn change(fields: &mut Fields, changes: &[CookieChange]) {
    let changed: Vec<Option<Vec<u8>>> = fields.all(Known::SetCookie).map(|line| changed(line, changes)).collect();
    if changed.iter().all(Option::is_none) {
        return;
    }
    let lines: Vec<Vec<u8>> = fields.all(Known::SetCookie).map(<[u8]>::to_vec).collect();
    fields.remove(Known::SetCookie);
    for (line, changed) in lines.into_iter().zip(changed) {
        fields.push(b"Set-Cookie", &changed.unwrap_or(line));
    }
}

/// A line of Set-Cookie as it is to be, if it is to be another one.
fn changed(line: &[u8], changes: &[CookieChange]) -> Option<Vec<u8>> {
    let mut parts = line.split(|byte| *byte == b';');
    let pair = parts.next()?;
    let name = pair.split(|byte| *byte == b'=').next()?.trim_ascii();
    let change = changes.iter().find(|change| change.name.as_bytes() == name)?;
    let mut changed = pair.to_vec();
    for part in parts {
        let attribute = part.split(|byte| *byte == b'=').next().unwrap_or_default().trim_ascii();
        let is = |name: &[u8]| attribute.eq_ignore_ascii_case(name);
        let is_replaced = (is(b"path") && change.path.is_some())
            || (is(b"domain") && change.domain.is_some())
            || (is(b"secure") && change.secure.is_some())
            || (is(b"samesite") && change.same_site.is_some());
        if !is_replaced {
            changed.push(b';');
            changed.extend_from_slice(part);
        }
    }
    let mut add = |attribute: String| changed.extend_from_slice(attribute.as_bytes());
    if let Some(path) = &change.path {
        add(format!("; Path={path}"));
    }
    if let Some(domain) = change.domain.as_deref().filter(|domain| !domain.is_empty()) {
        add(format!("; Domain={domain}"));
    }
    if change.secure == Some(true) {
        add("; Secure".to_owned());
    }
    if let Some(same_site) = change.same_site {
        add(format!("; SameSite={same_site}"));
    }
    Some(changed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewritten(line: &str, change: CookieChange) -> Option<String> {
        changed(line.as_bytes(), &[change]).map(|line| String::from_utf8(line).expect("ASCII"))
    }

    #[test]
    fn attributes_are_replaced_and_the_rest_stays() {
        let change = CookieChange {
            name: "id".into(),
            path: Some("/shop".into()),
            domain: Some("".into()),
            secure: Some(true),
            same_site: Some("Lax"),
        };
        let line = "id=a=b; path=/; Expires=Thu, 01 Jan 2026 00:00:00 GMT; DOMAIN=.x.example; HttpOnly; SameSite=None";
        assert_eq!(
            rewritten(line, change.clone()).as_deref(),
            Some("id=a=b; Expires=Thu, 01 Jan 2026 00:00:00 GMT; HttpOnly; Path=/shop; Secure; SameSite=Lax")
        );
        assert_eq!(rewritten("ID=1; Path=/", change.clone()), None, "another cookie");
        assert_eq!(rewritten("other=1", change), None);
    }

    #[test]
    fn attributes_without_a_change_stay() {
        let change = CookieChange { name: "id".into(), secure: Some(false), ..CookieChange::default() };
        assert_eq!(rewritten("id=1; Secure; Path=/a", change).as_deref(), Some("id=1; Path=/a"));
    }
}
