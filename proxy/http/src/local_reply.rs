//! Responses without an upstream.

use weir_http_codec::Fields;

use crate::{local_response::LocalResponse, refusal::Refusal};

/// A response that the gateway gives in its own name.
pub(crate) enum LocalReply {
    /// The refusal of the request.
    Refusal(Refusal),
    /// The response of the route, of a policy or of the external service.
    Response(Box<LocalResponse>),
}

impl LocalReply {
    /// A few words, or none, with these fields.
    pub(crate) fn text(status: u16, text: &'static str, fields: &Fields) -> Self {
        let response = LocalResponse::new(status, b"text/plain; charset=utf-8", text);
        Self::Response(Box::new(response.with(fields)))
    }
}

impl From<Refusal> for LocalReply {
    fn from(refusal: Refusal) -> Self {
        Self::Refusal(refusal)
    }
}
