//! Objects and arrays as text. Each ends when its writer is dropped.

use std::fmt::Write;

use weir_json_codec::write::string;

/// Writes the members of an object.
pub(crate) struct Members<'a> {
    out: &'a mut Vec<u8>,
    is_first: bool,
}

impl<'a> Members<'a> {
    /// Begins an object.
    pub(crate) fn new(out: &'a mut Vec<u8>) -> Self {
        out.push(b'{');
        Self { out, is_first: true }
    }

    fn key(&mut self, key: &'static str) -> &mut Vec<u8> {
        if !std::mem::take(&mut self.is_first) {
            self.out.push(b',');
        }
        string(self.out, key);
        self.out.push(b':');
        self.out
    }

    /// A value that is JSON.
    pub(crate) fn raw(&mut self, key: &'static str, value: impl AsRef<[u8]>) -> &mut Self {
        self.key(key).extend_from_slice(value.as_ref());
        self
    }

    /// The same, if there is one.
    pub(crate) fn raw_if(&mut self, key: &'static str, value: Option<impl AsRef<[u8]>>) -> &mut Self {
        if let Some(value) = value {
            self.raw(key, value);
        }
        self
    }

    /// A text as a string.
    pub(crate) fn text(&mut self, key: &'static str, value: &str) -> &mut Self {
        string(self.key(key), value);
        self
    }

    /// A string of parts that are JSON without their quotes.
    pub(crate) fn joined(&mut self, key: &'static str, parts: &[&str]) -> &mut Self {
        let out = self.key(key);
        out.push(b'"');
        for part in parts {
            out.extend_from_slice(part.as_bytes());
        }
        out.push(b'"');
        self
    }

    /// A list as an array.
    pub(crate) fn list(&mut self, key: &'static str, list: &[u8]) -> &mut Self {
        let out = self.key(key);
        out.push(b'[');
        out.extend_from_slice(list);
        out.push(b']');
        self
    }

    /// Begins an array whose items are [`listed`], so that no copy of them exists. The caller adds the last bracket.
    pub(crate) fn open_list(&mut self, key: &'static str) -> &mut Vec<u8> {
        let out = self.key(key);
        out.push(b'[');
        out
    }

    /// A number.
    pub(crate) fn number(&mut self, key: &'static str, value: u64) -> &mut Self {
        let mut digits = String::new();
        let _ = write!(digits, "{value}");
        self.raw(key, digits)
    }

    /// An object.
    pub(crate) fn object(&mut self, key: &'static str) -> Members<'_> {
        Members::new(self.key(key))
    }

    /// An array.
    pub(crate) fn array(&mut self, key: &'static str) -> Items<'_> {
        let out = self.key(key);
        out.push(b'[');
        Items { out, is_first: true }
    }
}

impl Drop for Members<'_> {
    fn drop(&mut self) {
        self.out.push(b'}');
    }
}

/// Writes the items of an array.
pub(crate) struct Items<'a> {
    out: &'a mut Vec<u8>,
    is_first: bool,
}

impl Items<'_> {
    /// An object.
    pub(crate) fn object(&mut self) -> Members<'_> {
        if !std::mem::take(&mut self.is_first) {
            self.out.push(b',');
        }
        Members::new(self.out)
    }
}

impl Drop for Items<'_> {
    fn drop(&mut self) {
        self.out.push(b']');
    }
}

/// Appends an object as one more item of a list of objects: it has no brackets yet, or ends with its open one.
pub(crate) fn listed(list: &mut Vec<u8>) -> Members<'_> {
    comma(list);
    Members::new(list)
}

/// Separates the next item of a list of objects.
pub(crate) fn comma(list: &mut Vec<u8>) {
    if !matches!(list.last(), None | Some(b'[')) {
        list.push(b',');
    }
}
