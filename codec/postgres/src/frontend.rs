//! Messages of clients. Views take the body of one whole message; encoders append a message.

mod encode;

pub use encode::*;

use crate::body::Body;
pub use crate::body::{Formats, Oids, Values};
use crate::error::MessageError;
use crate::limits::{LARGE_MESSAGE_BYTES_MAX, SMALL_MESSAGE_BYTES_MAX};

/// Type bytes.
#[expect(missing_docs, reason = "the names are those of the protocol")]
pub mod tag {
    pub const QUERY: u8 = b'Q';
    pub const PARSE: u8 = b'P';
    pub const BIND: u8 = b'B';
    pub const DESCRIBE: u8 = b'D';
    pub const EXECUTE: u8 = b'E';
    pub const CLOSE: u8 = b'C';
    pub const FLUSH: u8 = b'H';
    pub const SYNC: u8 = b'S';
    pub const FUNCTION_CALL: u8 = b'F';
    pub const COPY_DATA: u8 = b'd';
    pub const COPY_DONE: u8 = b'c';
    pub const COPY_FAIL: u8 = b'f';
    /// A password, or a message of SASL or GSSAPI.
    pub const PASSWORD: u8 = b'p';
    pub const TERMINATE: u8 = b'X';
}

/// Bytes that the body of a message with this type may have after the login, as PostgreSQL limits them; `None`: the type does not
/// exist then, and PostgreSQL ends the connection with `08P01 invalid frontend message type`.
#[inline]
pub const fn body_bytes_max(tag: u8) -> Option<usize> {
    match tag {
        tag::QUERY | tag::PARSE | tag::BIND | tag::FUNCTION_CALL | tag::COPY_DATA => Some(LARGE_MESSAGE_BYTES_MAX),
        tag::DESCRIBE
        | tag::EXECUTE
        | tag::CLOSE
        | tag::FLUSH
        | tag::SYNC
        | tag::COPY_DONE
        | tag::COPY_FAIL
        | tag::TERMINATE => Some(SMALL_MESSAGE_BYTES_MAX),
        _ => None,
    }
}

/// A text of statements (`Q`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Query<'a> {
    /// One statement, several, or none.
    pub text: &'a [u8],
}

impl<'a> Query<'a> {
    /// # Errors
    /// No NUL at the end, or bytes behind it.
    pub fn read(body: &'a [u8]) -> Result<Self, MessageError> {
        let mut body = Body::new(body);
        let text = body.string()?;
        body.end()?;
        Ok(Self { text })
    }
}

/// Prepares a statement (`P`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parse<'a> {
    /// Name of the statement; empty for the unnamed one.
    pub name: &'a [u8],
    /// The statement.
    pub text: &'a [u8],
    /// Types of its first parameters.
    pub types: Oids<'a>,
    /// Everything behind the name: text, NUL, types. Two statements with equal bytes here differ in the name alone.
    pub rest: &'a [u8],
}

impl<'a> Parse<'a> {
    /// # Errors
    /// The body does not have this form.
    pub fn read(body: &'a [u8]) -> Result<Self, MessageError> {
        let mut body = Body::new(body);
        let name = body.string()?;
        let rest = body.rest();
        let text = body.string()?;
        let types = Oids::read(&mut body)?;
        body.end()?;
        Ok(Self { name, text, types, rest })
    }
}

/// Gives a prepared statement its parameters (`B`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bind<'a> {
    /// Name of the new portal; empty for the unnamed one.
    pub portal: &'a [u8],
    /// Name of the statement.
    pub statement: &'a [u8],
    /// Everything behind the names: formats and values of the parameters, formats of the results. Not yet checked.
    pub rest: &'a [u8],
}

impl<'a> Bind<'a> {
    /// Reads the names alone; `body` may be the first part of a body that holds them.
    ///
    /// # Errors
    /// A name has no end.
    #[inline]
    pub fn read(body: &'a [u8]) -> Result<Self, MessageError> {
        let mut body = Body::new(body);
        Ok(Self { portal: body.string()?, statement: body.string()?, rest: body.rest() })
    }

    /// Reads the part behind the names.
    ///
    /// # Errors
    /// It does not have the form of a Bind.
    pub fn arguments(&self) -> Result<Arguments<'a>, MessageError> {
        let mut body = Body::new(self.rest);
        let arguments = Arguments { formats: body.formats()?, values: body.values()?, results: body.formats()? };
        body.end()?;
        Ok(arguments)
    }
}

/// Parameters of a Bind.
#[derive(Clone, Copy, Debug)]
pub struct Arguments<'a> {
    /// Formats of the values: none, one for all, or one each.
    pub formats: Formats<'a>,
    /// Values of the parameters.
    pub values: Values<'a>,
    /// Formats of the columns of the result: none, one for all, or one each.
    pub results: Formats<'a>,
}

/// The object of Describe or Close.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A prepared statement (`S`).
    Statement,
    /// A portal (`P`).
    Portal,
}

impl Kind {
    /// From its byte on the wire.
    pub const fn of(byte: u8) -> Option<Self> {
        match byte {
            b'S' => Some(Self::Statement),
            b'P' => Some(Self::Portal),
            _ => None,
        }
    }

    /// Its byte on the wire.
    pub const fn byte(self) -> u8 {
        match self {
            Self::Statement => b'S',
            Self::Portal => b'P',
        }
    }
}

/// Requests a description (`D`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Describe<'a> {
    /// Statement or portal.
    pub kind: Kind,
    /// Its name.
    pub name: &'a [u8],
}

impl<'a> Describe<'a> {
    /// # Errors
    /// The body does not have this form.
    pub fn read(body: &'a [u8]) -> Result<Self, MessageError> {
        let (byte, name) = target(body)?;
        Ok(Self { kind: Kind::of(byte).ok_or(MessageError::DescribeTarget(byte))?, name })
    }
}

/// Ends a statement or a portal (`C`). An unknown name is no error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Close<'a> {
    /// Statement or portal.
    pub kind: Kind,
    /// Its name.
    pub name: &'a [u8],
}

impl<'a> Close<'a> {
    /// # Errors
    /// The body does not have this form.
    pub fn read(body: &'a [u8]) -> Result<Self, MessageError> {
        let (byte, name) = target(body)?;
        Ok(Self { kind: Kind::of(byte).ok_or(MessageError::CloseTarget(byte))?, name })
    }
}

fn target(body: &[u8]) -> Result<(u8, &[u8]), MessageError> {
    let mut body = Body::new(body);
    let byte = body.u8()?;
    let name = body.string()?;
    body.end()?;
    Ok((byte, name))
}

/// Runs a portal (`E`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Execute<'a> {
    /// Name of the portal.
    pub portal: &'a [u8],
    /// Rows after which the portal is suspended; 0 or less: all.
    pub rows: i32,
}

impl<'a> Execute<'a> {
    /// # Errors
    /// The body does not have this form.
    pub fn read(body: &'a [u8]) -> Result<Self, MessageError> {
        let mut body = Body::new(body);
        let execute = Self { portal: body.string()?, rows: body.i32()? };
        body.end()?;
        Ok(execute)
    }
}

/// Calls a function by its OID (`F`), as the large-object calls of libpq do.
#[derive(Clone, Copy, Debug)]
pub struct FunctionCall<'a> {
    /// OID of the function.
    pub function: u32,
    /// Formats of the arguments: none, one for all, or one each.
    pub formats: Formats<'a>,
    /// The arguments.
    pub values: Values<'a>,
    /// Format of the result.
    pub result: i16,
}

impl<'a> FunctionCall<'a> {
    /// # Errors
    /// The body does not have this form.
    pub fn read(body: &'a [u8]) -> Result<Self, MessageError> {
        let mut body = Body::new(body);
        let call =
            Self { function: body.u32()?, formats: body.formats()?, values: body.values()?, result: body.i16()? };
        body.end()?;
        Ok(call)
    }
}

/// Ends a COPY from the client as failed (`f`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyFail<'a> {
    /// The reason, which the server repeats in its error.
    pub text: &'a [u8],
}

impl<'a> CopyFail<'a> {
    /// # Errors
    /// No NUL at the end, or bytes behind it.
    pub fn read(body: &'a [u8]) -> Result<Self, MessageError> {
        let mut body = Body::new(body);
        let text = body.string()?;
        body.end()?;
        Ok(Self { text })
    }
}

/// A password in clear text, or one hashed with MD5 (`p`).
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Password<'a>(pub &'a [u8]);

impl std::fmt::Debug for Password<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Password(..)")
    }
}

impl<'a> Password<'a> {
    /// # Errors
    /// The only NUL is not the last byte.
    pub fn read(body: &'a [u8]) -> Result<Self, MessageError> {
        match body {
            [password @ .., 0] if !password.contains(&0) => Ok(Self(password)),
            _ => Err(MessageError::PasswordSize),
        }
    }
}

/// The first message of SASL (`p`). Those that follow are bytes of the mechanism alone.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SaslInitial<'a> {
    /// The chosen mechanism.
    pub mechanism: &'a [u8],
    /// Its first message; `None`: the client waits for the server to begin.
    pub response: Option<&'a [u8]>,
}

impl std::fmt::Debug for SaslInitial<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SaslInitial").field("mechanism", &self.mechanism).finish_non_exhaustive()
    }
}

impl<'a> SaslInitial<'a> {
    /// # Errors
    /// The body does not have this form; a length that lies is [`MessageError::Short`].
    pub fn read(body: &'a [u8]) -> Result<Self, MessageError> {
        let mut body = Body::new(body);
        let initial = Self { mechanism: body.string()?, response: body.value()? };
        body.end()?;
        Ok(initial)
    }
}
