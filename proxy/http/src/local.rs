//! Responses without an upstream.

use weir_http_codec::Fields;

use crate::{refusal::Refusal, response::OwnAnswer};

/// A response that the gateway gives in its own name.
pub(crate) enum Local {
    /// The refusal of the request.
    Refused(Refusal),
    /// The response of the route, of a policy or of the service that decides.
    Answered(Box<OwnAnswer>),
}

impl Local {
    /// A few words, or none, with these fields.
    pub(crate) fn text(status: u16, text: &'static str, fields: &Fields) -> Self {
        let answer = OwnAnswer::new(status, b"text/plain; charset=utf-8", text);
        Self::Answered(Box::new(answer.with(fields)))
    }
}

impl From<Refusal> for Local {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}
