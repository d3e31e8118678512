//! Responses of the gateway's own.

use bytes::Bytes;
use weir_http_codec::{BodyLength, Fields, Known, ResponseHead, strip_hop_by_hop};

use crate::{date, refusal_format::FormattedRefusal};

/// A response of the gateway's own.
#[derive(Debug)]
pub(crate) struct LocalResponse {
    /// Without framing.
    pub(crate) head: ResponseHead,
    /// Empty for a status that has none.
    pub(crate) body: Bytes,
}

impl LocalResponse {
    /// With its date, as a server with a clock has to write it (RFC 9110 section 6.6.1), and with its media type, which means
    /// something only if there is a body.
    pub(crate) fn new(status: u16, content_type: &[u8], body: impl Into<Bytes>) -> Self {
        let body = body.into();
        let mut head = ResponseHead::from_parts(Default::default(), status, BodyLength::Exact(body.len() as u64));
        date::with(|date| head.fields.push(b"Date", date));
        if !body.is_empty() && !content_type.is_empty() && head.has_body(false) {
            head.fields.push(b"Content-Type", content_type);
        }
        Self { head, body }
    }

    /// Puts further fields into its head. A date among them takes the place of its own.
    pub(crate) fn with(mut self, fields: &Fields) -> Self {
        if fields.has(Known::Date) {
            self.head.fields.remove(Known::Date);
        }
        fields.iter().for_each(|field| self.head.fields.push(field.name, field.value));
        self
    }

    /// Puts the fields of another room into its head, without those of a connection and of the framing.
    pub(crate) fn with_own(self, mut fields: Fields) -> Self {
        strip_hop_by_hop(&mut fields);
        fields.remove(Known::ContentLength);
        self.with(&fields)
    }

    /// Gives it another form: its own fields stay, except those that the form has too.
    pub(crate) fn formatted(mut self, form: FormattedRefusal) -> Self {
        let FormattedRefusal { content_type, body, mut fields } = form;
        let status = self.head.status();
        self.head.fields.remove(Known::ContentType);
        strip_hop_by_hop(&mut fields);
        fields.remove(Known::ContentLength);
        let mut formatted = Self::new(status, content_type.as_bytes(), body).with(&self.head.fields);
        for field in fields.iter() {
            formatted.head.fields.remove_named(field.name);
        }
        fields.iter().for_each(|field| formatted.head.fields.push(field.name, field.value));
        formatted
    }

    /// The length in its head; `None` for a status that has no body.
    pub(crate) fn length(&self) -> Option<BodyLength> {
        self.head.has_body(false).then(|| self.head.announced())
    }

    /// The bytes behind the head, as a response to HEAD or to another method.
    pub(crate) fn body(&self, is_head: bool) -> &[u8] {
        if self.head.has_body(is_head) { &self.body } else { b"" }
    }
}

/// A response in the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectResponse {
    /// 200 to 599.
    pub status: u16,
    /// Its media type, if there is a body.
    pub content_type: String,
    /// At most 4 KiB.
    pub body: Vec<u8>,
}
