//! The record pump: drives the unbuffered API of rustls over a receive buffer and an output buffer.
//!
//! Requirements of the API, and where they are met: the bytes that a call did not discard must stand at the front of the
//! next buffer, unmoved, because rustls decrypts and joins handshake messages inside it ([`Incoming::residue`]); after
//! an error nothing may be fed any more (the session latches the first failure).

use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{ConnectionState, EncodeError, EncodeTlsData, EncryptError, UnbufferedStatus, WriteTraffic};
use rustls::{CommonState, Error};

use super::error::TlsFailure;
use super::session::{HANDSHAKE_BYTES_MAX, RESIDUE_BYTES_MAX};

/// Plaintext bytes in one full record (RFC 8446 section 5.1).
const RECORD_PLAIN_BYTES_MAX: usize = 16 * 1024;

/// Bytes of the largest record on the wire: header, and 2,048 bytes of expansion (RFC 5246 section 6.2.3).
pub(super) const RECORD_BYTES_MAX: usize = RECORD_HEADER_BYTES + RECORD_PLAIN_BYTES_MAX + 2_048;

/// Bytes of a record header (RFC 8446 section 5.1).
const RECORD_HEADER_BYTES: usize = 5;

/// Room that sealing reserves per record: header 5, explicit nonce 8 (TLS 1.2) or content type 1 (TLS 1.3), tag 16.
/// Too little costs a second attempt, never a wrong result.
const RECORD_OVERHEAD_BYTES: usize = 32;

/// The two connection types of rustls behind one face.
pub(super) trait Records {
    type Data;
    fn process<'c, 'i>(&'c mut self, input: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data>;
    fn common(&self) -> &CommonState;
}

impl Records for UnbufferedServerConnection {
    type Data = ServerConnectionData;

    fn process<'c, 'i>(&'c mut self, input: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data> {
        self.process_tls_records(input)
    }

    fn common(&self) -> &CommonState {
        self
    }
}

impl Records for UnbufferedClientConnection {
    type Data = ClientConnectionData;

    fn process<'c, 'i>(&'c mut self, input: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data> {
        self.process_tls_records(input)
    }

    fn common(&self) -> &CommonState {
        self
    }
}

/// The next data from our side of the connection.
#[derive(Clone, Copy)]
pub(super) enum Outgoing<'a> {
    Plain(&'a [u8]),
    CloseNotify,
}

/// The receiving half of a session.
#[derive(Default)]
pub(super) struct Incoming {
    /// A record that is not complete yet, or a handshake message that rustls is still joining. No capacity when empty.
    residue: Vec<u8>,
    /// Bytes consumed before the handshake was complete.
    handshake_bytes: usize,
    peer_closed: bool,
}

impl Incoming {
    pub(super) fn peer_closed(&self) -> bool {
        self.peer_closed
    }

    pub(super) fn residue_bytes(&self) -> usize {
        self.residue.capacity()
    }

    /// Forgets what is kept; the session is over.
    pub(super) fn discard(&mut self) {
        self.residue = Vec::new();
    }

    /// See [`TlsSession::on_wire`](super::TlsSession::on_wire).
    pub(super) fn feed<R: Records>(
        &mut self,
        connection: &mut R,
        mut input: &mut [u8],
        plain: &mut Vec<u8>,
        wire: &mut Vec<u8>,
    ) -> Result<(), TlsFailure> {
        if self.peer_closed {
            return Ok(());
        }
        if !self.residue.is_empty() {
            // Only what completes the record that was cut is copied; the records after it are decrypted where they are.
            let (head, rest) = input.split_at_mut(self.missing_bytes(input).min(input.len()));
            self.residue.extend_from_slice(head);
            let mut residue = std::mem::take(&mut self.residue);
            let consumed = self.pump(connection, &mut residue, plain, wire)?;
            if consumed < residue.len() {
                residue.drain(..consumed);
                self.residue = residue;
            }
            input = rest;
        }
        if self.peer_closed {
            self.discard();
            return Ok(());
        }
        if self.residue.is_empty() {
            let consumed = self.pump(connection, input, plain, wire)?;
            self.residue.extend_from_slice(&input[consumed..]);
        } else if !input.is_empty() {
            // rustls is joining a handshake message out of several records, so they must stand in one buffer.
            let mut residue = std::mem::take(&mut self.residue);
            residue.extend_from_slice(input);
            let consumed = self.pump(connection, &mut residue, plain, wire)?;
            residue.drain(..consumed);
            self.residue = residue;
        }
        self.check_limits(connection)
    }

    /// How many more bytes the record at the front of the residue needs; right if the residue is one cut record. If it
    /// is a handshake message being joined instead, any result is correct: the rest is fed in a second step.
    fn missing_bytes(&self, input: &[u8]) -> usize {
        let byte = |index: usize| self.residue.get(index).or_else(|| input.get(index - self.residue.len()));
        match (byte(3), byte(4)) {
            (Some(high), Some(low)) => {
                let record = RECORD_HEADER_BYTES + usize::from(u16::from_be_bytes([*high, *low]));
                record.saturating_sub(self.residue.len())
            }
            _ => input.len(),
        }
    }

    fn check_limits<R: Records>(&mut self, connection: &R) -> Result<(), TlsFailure> {
        if self.residue.is_empty() {
            self.residue = Vec::new();
        }
        if self.peer_closed {
            self.discard();
        }
        let pending = self.handshake_bytes.saturating_add(self.residue.len());
        if connection.common().is_handshaking() && pending > HANDSHAKE_BYTES_MAX {
            return Err(TlsFailure::HandshakeTooLong(pending));
        }
        if self.residue.len() > RESIDUE_BYTES_MAX {
            return Err(TlsFailure::MessageTooLong(self.residue.len()));
        }
        Ok(())
    }

    /// Lets rustls work through `buffer` until it wants more bytes; gives how many bytes of its front are done with.
    fn pump<R: Records>(
        &mut self,
        connection: &mut R,
        buffer: &mut [u8],
        plain: &mut Vec<u8>,
        wire: &mut Vec<u8>,
    ) -> Result<usize, TlsFailure> {
        let mut at = 0;
        loop {
            let handshaking = connection.common().is_handshaking();
            let UnbufferedStatus { mut discard, state } = connection.process(&mut buffer[at..]);
            let more = match state {
                Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                    while let Some(record) = traffic.next_record() {
                        let record = record?;
                        plain.extend_from_slice(record.payload);
                        discard += record.discard;
                    }
                    true
                }
                Ok(ConnectionState::EncodeTlsData(data)) => append_encoded(data, wire).map(|()| true)?,
                Ok(ConnectionState::TransmitTlsData(data)) => {
                    data.done();
                    true
                }
                Ok(ConnectionState::PeerClosed) => {
                    self.peer_closed = true;
                    true
                }
                Ok(ConnectionState::Closed | ConnectionState::BlockedHandshake | ConnectionState::WriteTraffic(_)) => {
                    false
                }
                // Early data is never enabled; a state that a later rustls adds is not known here.
                Ok(_) => return Err(TlsFailure::Internal("unexpected TLS state")),
                Err(error) => {
                    at += discard;
                    append_alert(connection, &mut buffer[at..], wire);
                    return Err(error.into());
                }
            };
            at += discard;
            if handshaking {
                self.handshake_bytes = self.handshake_bytes.saturating_add(discard);
            }
            if !more {
                return Ok(at);
            }
        }
    }

    /// Sends `what`, after anything that rustls had queued before.
    pub(super) fn write<R: Records>(
        &mut self,
        connection: &mut R,
        what: Outgoing<'_>,
        wire: &mut Vec<u8>,
    ) -> Result<(), TlsFailure> {
        loop {
            let UnbufferedStatus { discard, state } = connection.process(&mut self.residue);
            // Every whole record was processed when it arrived, so there is nothing to read here.
            debug_assert_eq!(discard, 0);
            match state? {
                ConnectionState::WriteTraffic(traffic) => return append_sealed(traffic, what, wire),
                ConnectionState::EncodeTlsData(data) => append_encoded(data, wire)?,
                ConnectionState::TransmitTlsData(data) => data.done(),
                ConnectionState::Closed => return Err(TlsFailure::Closed),
                ConnectionState::PeerClosed => self.peer_closed = true,
                _ => return Err(TlsFailure::Internal("unexpected TLS state")),
            }
        }
    }
}

/// Appends the alert that explains an error, and records queued before it. `buffer` is what rustls has not discarded:
/// it may still look at it.
fn append_alert<R: Records>(connection: &mut R, buffer: &mut [u8], wire: &mut Vec<u8>) {
    while connection.common().wants_write() {
        let Ok(ConnectionState::EncodeTlsData(data)) = connection.process(buffer).state else {
            return;
        };
        if append_encoded(data, wire).is_err() {
            return;
        }
    }
}

/// Appends one encoded handshake, alert or ticket record.
fn append_encoded<D>(mut data: EncodeTlsData<'_, D>, wire: &mut Vec<u8>) -> Result<(), TlsFailure> {
    append(wire, 0, |room| match data.encode(room) {
        Ok(written) => Ok(written),
        Err(EncodeError::InsufficientSize(need)) => Err(Some(need.required_size)),
        Err(EncodeError::AlreadyEncoded) => Err(None),
    })
    .ok_or(TlsFailure::Internal("TLS record encoded twice"))
}

/// Appends sealed application data or close_notify.
fn append_sealed<D>(
    mut traffic: WriteTraffic<'_, D>,
    what: Outgoing<'_>,
    wire: &mut Vec<u8>,
) -> Result<(), TlsFailure> {
    let room = match what {
        Outgoing::Plain(plain) => {
            let records = plain.len().div_ceil(RECORD_PLAIN_BYTES_MAX);
            plain.len().saturating_add(records.saturating_mul(RECORD_OVERHEAD_BYTES))
        }
        Outgoing::CloseNotify => 2 + RECORD_OVERHEAD_BYTES,
    };
    append(wire, room, |room| {
        let written = match what {
            Outgoing::Plain(plain) => traffic.encrypt(plain, room),
            Outgoing::CloseNotify => traffic.queue_close_notify(room),
        };
        written.map_err(|error| match error {
            EncryptError::InsufficientSize(need) => Some(need.required_size),
            EncryptError::EncryptExhausted => None,
        })
    })
    .ok_or(TlsFailure::KeysExhausted)
}

/// Grows `wire` by `room` bytes and lets `write` fill them. `write` gives the bytes written, or the room that it needs
/// and then gets, or `None`: then `wire` is as before.
fn append(
    wire: &mut Vec<u8>,
    mut room: usize,
    mut write: impl FnMut(&mut [u8]) -> Result<usize, Option<usize>>,
) -> Option<()> {
    let start = wire.len();
    loop {
        wire.resize(start + room, 0);
        match write(&mut wire[start..]) {
            Ok(written) => {
                wire.truncate(start + written);
                return Some(());
            }
            Err(Some(needed)) if needed > room => room = needed,
            Err(_) => {
                wire.truncate(start);
                return None;
            }
        }
    }
}

impl From<Error> for TlsFailure {
    fn from(error: Error) -> Self {
        TlsFailure::Rustls(error)
    }
}
