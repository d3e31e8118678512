//! Errors of JSON-RPC (section 5.1 of its specification) as bytes.

use weir_json_codec::write::string;

/// The message is no JSON.
pub const PARSE_ERROR: i32 = -32_700;

/// The message is no request.
pub const INVALID_REQUEST: i32 = -32_600;

/// There is no such method.
pub const METHOD_NOT_FOUND: i32 = -32_601;

/// The parameters are wrong. MCP uses it for a tool that does not exist ("Tools", "Error Handling").
pub const INVALID_PARAMS: i32 = -32_602;

/// The server has failed.
pub const INTERNAL_ERROR: i32 = -32_603;

/// A limit or a rule of the gateway: the first of the codes that an implementation may define.
pub const REFUSED: i32 = -32_000;

/// The session is not known. The code of the official SDK for TypeScript.
pub const SESSION_NOT_FOUND: i32 = -32_001;

/// The head says another method or name than the message (MCP 2026-07-28, "Server Validation").
pub const HEADER_MISMATCH: i32 = -32_020;

/// An error in place of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorReply<'a> {
    /// The id of the request as it stands there. `None`: it is not known, or there is none.
    pub id: Option<&'a [u8]>,
    /// One of the codes above.
    pub code: i32,
    /// It quotes nothing of the request.
    pub message: &'a str,
    /// A stable word for programs: `data.reason`.
    pub reason: Option<&'a str>,
    /// Milliseconds until the request may come again: `data.retry_after_ms`.
    pub retry_after_ms: Option<u64>,
}

impl ErrorReply<'_> {
    /// The message.
    pub fn bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(256);
        out.extend_from_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
        out.extend_from_slice(self.id.unwrap_or(b"null"));
        out.extend_from_slice(b",\"error\":{\"code\":");
        out.extend_from_slice(itoa::Buffer::new().format(self.code).as_bytes());
        out.extend_from_slice(b",\"message\":");
        string(&mut out, self.message);
        if let Some(reason) = self.reason {
            out.extend_from_slice(b",\"data\":{\"reason\":");
            string(&mut out, reason);
            if let Some(wait) = self.retry_after_ms {
                out.extend_from_slice(b",\"retry_after_ms\":");
                out.extend_from_slice(itoa::Buffer::new().format(wait).as_bytes());
            }
            out.push(b'}');
        }
        out.extend_from_slice(b"}}");
        out
    }
}
