//! Requests for authentication (`R`).

use crate::body::Body;
use crate::error::MessageError;

/// A message of the server before it accepts a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Authentication<'a> {
    /// The client is accepted.
    Ok,
    /// Kerberos V5, which no supported server requests.
    KerberosV5,
    /// The password in clear text.
    CleartextPassword,
    /// The password hashed with MD5.
    Md5Password {
        /// Salt of this connection.
        salt: [u8; 4],
    },
    /// GSSAPI.
    Gss,
    /// The next token of GSSAPI or SSPI.
    GssContinue(&'a [u8]),
    /// SSPI.
    Sspi,
    /// One of these mechanisms of SASL.
    Sasl(Mechanisms<'a>),
    /// The mechanism's next message.
    SaslContinue(&'a [u8]),
    /// The mechanism's last message.
    SaslFinal(&'a [u8]),
}

impl<'a> Authentication<'a> {
    /// # Errors
    /// A code that does not exist, or a body that does not have the form of its code.
    pub fn read(body: &'a [u8]) -> Result<Self, MessageError> {
        let mut body = Body::new(body);
        let request = match body.u32()? {
            0 => Self::Ok,
            2 => Self::KerberosV5,
            3 => Self::CleartextPassword,
            5 => Self::Md5Password { salt: body.array()? },
            7 => Self::Gss,
            8 => return Ok(Self::GssContinue(body.rest())),
            9 => Self::Sspi,
            10 => Self::Sasl(Mechanisms::read(&mut body)?),
            11 => return Ok(Self::SaslContinue(body.rest())),
            12 => return Ok(Self::SaslFinal(body.rest())),
            code => return Err(MessageError::AuthenticationCode(code)),
        };
        body.end()?;
        Ok(request)
    }
}

/// Names of mechanisms, the server's favourite first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mechanisms<'a>(&'a [u8]);

impl<'a> Mechanisms<'a> {
    /// Up to and with the empty name that ends the list.
    fn read(body: &mut Body<'a>) -> Result<Self, MessageError> {
        let start = body.rest();
        while !body.string()?.is_empty() {}
        Ok(Self(&start[..start.len() - body.rest().len() - 1]))
    }

    /// In order.
    pub fn iter(self) -> impl Iterator<Item = &'a [u8]> {
        let mut body = Body::new(self.0);
        std::iter::from_fn(move || body.string().ok())
    }
}
