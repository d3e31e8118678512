//! Header values with variables: `ip=%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%`.
//!
//! The syntax and the names are Envoy's (`%NAME%`, `%REQ(header)%`, `%%`), which Contour's users write too, so that values
//! can be taken over as they are. Inside Weir the party that connected is the client: only these names say "downstream".
//!
//! Three rules differ, each where Envoy lets a mistake through: an unknown variable is an error of the configuration, and
//! so is one of the response in a header of the request; and a header with a variable that is empty for this request is
//! not sent at all, because half a value reads like a whole one.

use std::fmt;

use weir_base::nearest;

use crate::{
    condition::is_token,
    limits::{RENDERED_BYTES_MAX, TEMPLATE_BYTES_MAX},
};

/// The meaning of a variable. The caller that renders a template knows the values at that moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Variable {
    /// Address of the client, with port.
    ClientAddress,
    /// Address of the client.
    ClientIp,
    /// Port of the client.
    ClientPort,
    /// Address that the client connected to, with port.
    LocalAddress,
    /// Address that the client connected to.
    LocalIp,
    /// Port that the client connected to.
    LocalPort,
    /// `HTTP/1.1`, `HTTP/2`.
    Protocol,
    /// `TLSv1.3`.
    TlsVersion,
    /// The cipher suite.
    TlsCipher,
    /// Subject of the client's certificate (RFC 2253).
    PeerSubject,
    /// Issuer of the client's certificate (RFC 2253).
    PeerIssuer,
    /// Serial number of the client's certificate, in hexadecimal.
    PeerSerial,
    /// SHA-256 of the client's certificate, in hexadecimal.
    PeerFingerprint,
    /// URIs among the alternative names of the client's certificate, with commas between them.
    PeerUriSan,
    /// The client's certificate: PEM, percent-encoded.
    PeerCertificate,
    /// Start of the validity of the client's certificate (RFC 3339, UTC, seconds).
    PeerValidFrom,
    /// End of the validity of the client's certificate.
    PeerValidTo,
    /// A header of the request; lower case.
    RequestHeader(Box<str>),
    /// When the request came (RFC 3339, UTC, milliseconds): `2026-01-31T23:59:59.000Z`.
    StartTime,
    /// Name of this machine.
    Hostname,
    /// Name of the route.
    RouteName,
    /// Name of the upstream that the route chose.
    UpstreamName,
    /// Address of the endpoint that answered, as configured. Response only.
    UpstreamAddress,
}

/// Every variable without argument, as it is written.
const VARIABLES: &[(&str, Variable)] = &[
    ("DOWNSTREAM_REMOTE_ADDRESS", Variable::ClientAddress),
    ("DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT", Variable::ClientIp),
    ("DOWNSTREAM_REMOTE_PORT", Variable::ClientPort),
    ("DOWNSTREAM_LOCAL_ADDRESS", Variable::LocalAddress),
    ("DOWNSTREAM_LOCAL_ADDRESS_WITHOUT_PORT", Variable::LocalIp),
    ("DOWNSTREAM_LOCAL_PORT", Variable::LocalPort),
    ("PROTOCOL", Variable::Protocol),
    ("DOWNSTREAM_TLS_VERSION", Variable::TlsVersion),
    ("DOWNSTREAM_TLS_CIPHER", Variable::TlsCipher),
    ("DOWNSTREAM_PEER_SUBJECT", Variable::PeerSubject),
    ("DOWNSTREAM_PEER_ISSUER", Variable::PeerIssuer),
    ("DOWNSTREAM_PEER_SERIAL", Variable::PeerSerial),
    ("DOWNSTREAM_PEER_FINGERPRINT_256", Variable::PeerFingerprint),
    ("DOWNSTREAM_PEER_URI_SAN", Variable::PeerUriSan),
    ("DOWNSTREAM_PEER_CERT", Variable::PeerCertificate),
    ("DOWNSTREAM_PEER_CERT_V_START", Variable::PeerValidFrom),
    ("DOWNSTREAM_PEER_CERT_V_END", Variable::PeerValidTo),
    ("START_TIME", Variable::StartTime),
    ("HOSTNAME", Variable::Hostname),
    ("ROUTE_NAME", Variable::RouteName),
    ("UPSTREAM_CLUSTER", Variable::UpstreamName),
    ("UPSTREAM_REMOTE_ADDRESS", Variable::UpstreamAddress),
];

/// The variable with an argument.
const REQUEST_HEADER: &str = "REQ";

/// Where a value is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// In a header for the upstream.
    Request,
    /// In a header for the client.
    Response,
}

/// Why a value in the configuration was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TemplateError {
    /// `%` without another one behind it.
    Unclosed,
    /// No such variable.
    Unknown {
        /// As it was written.
        name: String,
        /// A known variable with a similar name, as it is written.
        nearest: Option<&'static str>,
    },
    /// `%REQ%` or `%REQ()%`, or an argument where there is none.
    Argument(String),
    /// A variable that only responses have, in a header of the request.
    ResponseOnly(String),
    /// A byte that no field value has (RFC 9110 5.5).
    Character,
    /// Over [`TEMPLATE_BYTES_MAX`].
    TooLong,
}

impl fmt::Display for TemplateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unclosed => f.write_str("`%` begins a variable that does not end: write `%%` for a percent sign"),
            Self::Unknown { name, nearest } => {
                write!(f, "there is no variable `%{name}%`")?;
                match nearest {
                    Some(nearest) => write!(f, "; did you mean `%{nearest}%`?"),
                    None => f.write_str(" (write `%%` for a percent sign)"),
                }
            }
            Self::Argument(name) => write!(
                f,
                "`%{name}%`: `%REQ(name)%` needs the name of a header, and no other variable takes an argument"
            ),
            Self::ResponseOnly(name) => {
                write!(f, "`%{name}%` is not known yet when the request is sent: use it in headers of the response")
            }
            Self::Character => f.write_str("a header value has no control characters"),
            Self::TooLong => write!(f, "a header value has at most {TEMPLATE_BYTES_MAX} bytes"),
        }
    }
}

impl std::error::Error for TemplateError {}

/// The value for one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rendered {
    /// It was appended.
    Value,
    /// A variable is empty: the header is not sent.
    Empty,
    /// A variable has a byte that would end the field, or all is over [`RENDERED_BYTES_MAX`]: the header is not sent.
    Refused,
}

/// A header value, read once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    parts: Vec<Part>,
}

/// A part of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// As it is.
    Text(Box<str>),
    /// Filled in.
    Variable(Variable),
}

impl Template {
    /// Reads a value.
    ///
    /// # Errors
    /// See [`TemplateError`].
    pub fn parse(text: &str, side: Side) -> Result<Self, TemplateError> {
        if text.len() > TEMPLATE_BYTES_MAX {
            return Err(TemplateError::TooLong);
        }
        if !is_field_text(text.as_bytes()) {
            return Err(TemplateError::Character);
        }
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((before, behind)) = rest.split_once('%') {
            push_text(&mut parts, before);
            let (name, behind) = behind.split_once('%').ok_or(TemplateError::Unclosed)?;
            match name {
                "" => push_text(&mut parts, "%"),
                _ => parts.push(Part::Variable(variable(name, side)?)),
            }
            rest = behind;
        }
        push_text(&mut parts, rest);
        Ok(Self { parts })
    }

    /// Its parts, in order. Text never stands next to text.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// The value if it is the same for every request; such a one needs no rendering.
    pub fn literal(&self) -> Option<&str> {
        match &*self.parts {
            [] => Some(""),
            [Part::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// Appends the value to `output`; unless it is [`Rendered::Value`], `output` stays as it was. `resolve` appends what a
    /// variable stands for, nothing if it has no value now.
    pub fn render(&self, output: &mut Vec<u8>, mut resolve: impl FnMut(&Variable, &mut Vec<u8>)) -> Rendered {
        let start = output.len();
        let mut rendered = Rendered::Value;
        for part in &self.parts {
            let at = output.len();
            match part {
                Part::Text(text) => output.extend_from_slice(text.as_bytes()),
                Part::Variable(variable) => {
                    resolve(variable, output);
                    // The issuer of a certificate chooses its subject: it may hold any text.
                    if !is_field_text(&output[at..]) {
                        rendered = Rendered::Refused;
                    } else if output.len() == at {
                        rendered = Rendered::Empty;
                    }
                }
            }
            if output.len() - start > RENDERED_BYTES_MAX {
                rendered = Rendered::Refused;
            }
            if rendered != Rendered::Value {
                output.truncate(start);
                break;
            }
        }
        rendered
    }
}

/// Text next to text becomes one.
fn push_text(parts: &mut Vec<Part>, text: &str) {
    match parts.last_mut() {
        _ if text.is_empty() => {}
        Some(Part::Text(last)) => *last = format!("{last}{text}").into(),
        _ => parts.push(Part::Text(text.into())),
    }
}

/// `name` is what stands between the percent signs.
fn variable(name: &str, side: Side) -> Result<Variable, TemplateError> {
    let (word, argument) = match name.split_once('(') {
        Some((word, rest)) => (word, Some(rest.strip_suffix(')').unwrap_or_default())),
        None => (name, None),
    };
    if word == REQUEST_HEADER {
        return match argument {
            Some(header) if is_token(header) => Ok(Variable::RequestHeader(header.to_ascii_lowercase().into())),
            _ => Err(TemplateError::Argument(name.to_owned())),
        };
    }
    let Some((_, variable)) = VARIABLES.iter().find(|(known, _)| *known == word) else {
        let known = VARIABLES.iter().map(|(known, _)| *known).chain([REQUEST_HEADER]);
        return Err(TemplateError::Unknown {
            name: name.to_owned(),
            nearest: nearest(&word.to_ascii_uppercase(), known),
        });
    };
    if argument.is_some() {
        return Err(TemplateError::Argument(name.to_owned()));
    }
    if *variable == Variable::UpstreamAddress && side == Side::Request {
        return Err(TemplateError::ResponseOnly(name.to_owned()));
    }
    Ok(variable.clone())
}

/// No control characters but the tab (RFC 9110 5.5).
fn is_field_text(bytes: &[u8]) -> bool {
    bytes.iter().all(|&byte| byte == b'\t' || byte >= b' ' && byte != 0x7f)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Template, TemplateError> {
        Template::parse(text, Side::Request)
    }

    fn rendered(text: &str) -> (Rendered, String) {
        let mut output = b"> ".to_vec();
        let rendered = parse(text).expect("a template").render(&mut output, |variable, output| match variable {
            Variable::ClientIp => output.extend_from_slice(b"192.0.2.1"),
            Variable::RequestHeader(name) => output.extend_from_slice(name.as_bytes()),
            Variable::PeerSubject => output.extend_from_slice(b"CN=x\r\nEvil: 1"),
            Variable::PeerCertificate => output.resize(RENDERED_BYTES_MAX + 10, b'a'),
            _ => {}
        });
        (rendered, String::from_utf8(output).expect("text"))
    }

    #[test]
    fn variables_are_filled_in() {
        for (text, expected) in [
            ("", "> "),
            ("plain", "> plain"),
            ("100%%", "> 100%"),
            ("%%%%", "> %%"),
            ("%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%", "> 192.0.2.1"),
            ("for=%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%;by=%REQ(X-Who)%.", "> for=192.0.2.1;by=x-who."),
        ] {
            assert_eq!(rendered(text), (Rendered::Value, expected.to_owned()), "{text}");
        }
    }

    #[test]
    fn a_header_with_an_empty_variable_is_not_sent() {
        assert_eq!(rendered("%DOWNSTREAM_TLS_VERSION%"), (Rendered::Empty, "> ".to_owned()));
        assert_eq!(rendered("tls=%DOWNSTREAM_TLS_VERSION%; a"), (Rendered::Empty, "> ".to_owned()), "half a value");
    }

    #[test]
    fn values_that_would_end_the_field_or_flood_it_are_not_sent() {
        assert_eq!(rendered("a %DOWNSTREAM_PEER_SUBJECT%"), (Rendered::Refused, "> ".to_owned()));
        assert_eq!(rendered("a %DOWNSTREAM_PEER_CERT%"), (Rendered::Refused, "> ".to_owned()));
    }

    #[test]
    fn an_unknown_variable_is_named_with_its_neighbour() {
        for (text, message) in [
            ("%PROTOCL%", "there is no variable `%PROTOCL%`; did you mean `%PROTOCOL%`?"),
            ("%protocol%", "there is no variable `%protocol%`; did you mean `%PROTOCOL%`?"),
            ("%RQE(x)%", "there is no variable `%RQE(x)%`; did you mean `%REQ%`?"),
            ("%x%", "there is no variable `%x%` (write `%%` for a percent sign)"),
            ("100%", "`%` begins a variable that does not end: write `%%` for a percent sign"),
        ] {
            assert_eq!(parse(text).expect_err(text).to_string(), message);
        }
        for text in ["%REQ%", "%REQ()%", "%REQ(a b)%", "%REQ(a%", "%PROTOCOL(x)%", "%REQ(a?b)%"] {
            assert!(matches!(parse(text), Err(TemplateError::Argument(_))), "{text}");
        }
        assert_eq!(parse("a\r\nb"), Err(TemplateError::Character));
        assert_eq!(parse(&"a".repeat(TEMPLATE_BYTES_MAX + 1)), Err(TemplateError::TooLong));
    }

    #[test]
    fn response_variables_are_refused_in_a_request() {
        let text = "%UPSTREAM_REMOTE_ADDRESS%";
        assert!(matches!(parse(text), Err(TemplateError::ResponseOnly(_))), "{text}");
        assert!(Template::parse(text, Side::Response).is_ok(), "{text}");
    }

    #[test]
    fn every_variable_has_one_name() {
        for (at, (name, variable)) in VARIABLES.iter().enumerate() {
            assert!(VARIABLES[at + 1..].iter().all(|(other, same)| other != name && same != variable), "{name}");
            let template = Template::parse(&format!("%{name}%"), Side::Response).expect(name);
            assert_eq!(template.parts(), [Part::Variable(variable.clone())]);
            assert_eq!(template.literal(), None);
        }
        assert_eq!(parse("a%%b").expect("text").literal(), Some("a%b"));
    }
}
