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

/// Appends an object as one more item of a list whose brackets come later.
pub(crate) fn listed(list: &mut Vec<u8>) -> Members<'_> {
    if !list.is_empty() {
        list.push(b',');
    }
    Members::new(list)
}

/// A list with its brackets.
pub(crate) fn array(list: &[u8]) -> Vec<u8> {
    [b"[", list, b"]"].concat()
}
