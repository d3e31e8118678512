//! Bytes of the client become requests, and requests go on to a server.

use std::mem;

use weir_base::{error::Culprit, time::turn, violation::Violation};
use weir_listener::CloseReason;
use weir_mongodb_codec::{
    MessageError,
    compressed::{Compressed, Compressor},
    header::{HEADER_BYTES, Header, OpCode},
    limits::{DOCUMENT_BYTES_MAX, PREAUTH_MESSAGE_BYTES_MAX},
    sections::SectionFramer,
};
use weir_mongodb_session::{Next, Refusal, Request, Want};

use super::life::{Life, Routed, Sending, Stage, has_room_for};

/// Room that a client may keep behind a message. Default 64 KiB, as much as one chunk brings.
const SPARE_BYTES_MAX: usize = 64 * 1024;

/// The first section of a message is its body, and no longer than a document may be.
fn begins_with_body(message: &[u8]) -> bool {
    let section = message.get(HEADER_BYTES + 4..).and_then(<[u8]>::first_chunk::<5>);
    section.is_some_and(|[kind, a, b, c, d]| {
        *kind == 0 && u32::from_le_bytes([*a, *b, *c, *d]) as usize <= DOCUMENT_BYTES_MAX
    })
}

/// An idle client keeps no room, and the room of a long message goes with it.
pub(super) fn shrink(input: &mut Vec<u8>) {
    if input.is_empty() {
        *input = Vec::new();
    } else if input.capacity() > SPARE_BYTES_MAX && input.capacity() / 4 > input.len() {
        input.shrink_to_fit();
    }
}

/// A request as it came, if it was compressed, and its compressor.
pub(super) type Packed<'a> = Option<(&'a [u8], Compressor)>;

impl Life<'_> {
    /// Bytes of the client.
    pub(super) fn on_chunk(&mut self, chunk: &[u8]) -> Result<(), CloseReason> {
        self.active = turn::now();
        if self.input.is_empty() {
            let consumed = self.offer(chunk)?;
            self.input.extend_from_slice(&chunk[consumed..]);
            return Ok(());
        }
        self.input.extend_from_slice(chunk);
        self.go_on()
    }

    /// Looks again at the bytes that wait.
    pub(super) fn go_on(&mut self) -> Result<(), CloseReason> {
        if self.input.is_empty() {
            return Ok(());
        }
        let mut input = mem::take(&mut self.input);
        let consumed = self.offer(&input)?;
        input.drain(..consumed);
        shrink(&mut input);
        self.input = input;
        Ok(())
    }

    /// In front of its login a client may have as much here as one message may have then: no driver sends several.
    pub(super) fn check_unknown(&self) -> Result<(), CloseReason> {
        if self.session.login().is_done() || self.input.len() <= PREAUTH_MESSAGE_BYTES_MAX {
            return Ok(());
        }
        let (bytes, most) = (self.input.len() as u64, PREAUTH_MESSAGE_BYTES_MAX as u64);
        let text = "the client sends too much in front of its login";
        Err(self.connection.violated(&Violation::limit("mongodb_preauth_bytes", Culprit::Client, text, bytes, most)))
    }

    /// Takes as much of `input` as the present stage can have. Returns how many bytes that were.
    fn offer(&mut self, input: &[u8]) -> Result<usize, CloseReason> {
        let mut at = 0;
        loop {
            let rest = &input[at..];
            match &mut self.stage {
                // It does not take its replies: they would grow with the requests that are here.
                Stage::Request if !rest.is_empty() && self.output.is_congested() => {
                    self.is_held_back = true;
                    return Ok(at);
                }
                Stage::Request if !rest.is_empty() => match self.request(rest)? {
                    Some(taken) => at += taken,
                    None => return Ok(at),
                },
                Stage::Skipping(left) => {
                    let skipped = rest.len().min(*left);
                    (at, *left) = (at + skipped, *left - skipped);
                    if *left > 0 {
                        return Ok(at);
                    }
                    self.partial_since = None;
                    self.stage = Stage::Request;
                }
                Stage::Sending(_) if !rest.is_empty() => at += self.forward(rest)?,
                _ => return Ok(at),
            }
        }
    }

    /// A message at the front of `rest`. `None`: it is not here as far as it has to be, or it waits for something else.
    fn request(&mut self, rest: &[u8]) -> Result<Option<usize>, CloseReason> {
        let header = match Header::read(rest) {
            Ok(Some(header)) => header,
            Ok(None) => return Ok(self.in_part()),
            Err(error) => return Err(self.broken(error)),
        };
        let most = match header.op_code {
            // The handshake of an old driver is all that may come in this form.
            OpCode::Query => PREAUTH_MESSAGE_BYTES_MAX,
            _ => self.session.message_bytes_max(),
        };
        if header.bytes > most {
            let (bytes, most) = (header.bytes as u64, most as u64);
            let text = "a message is longer than it may be here";
            return Err(self.connection.violated(&Violation::limit(
                "mongodb_message_length",
                Culprit::Client,
                text,
                bytes,
                most,
            )));
        }
        let whole = rest.get(..header.bytes);
        match (header.op_code, whole) {
            (OpCode::Msg | OpCode::Query, Some(message)) => self.begin(message, &header, None),
            (OpCode::Msg, None) if header.bytes > self.scene.settings.held_bytes_max => self.begin_long(rest, &header),
            (OpCode::Compressed, Some(message)) => self.begin_compressed(message),
            (OpCode::Msg | OpCode::Query | OpCode::Compressed, None) => Ok(self.in_part()),
            (OpCode::Reply | OpCode::Retired(_), _) => Err(self.broken(MessageError::OpCode(header.op_code.number()))),
        }
    }

    /// A message is here in part.
    fn in_part(&mut self) -> Option<usize> {
        self.partial_since.get_or_insert_with(turn::now);
        None
    }

    fn broken(&self, error: MessageError) -> CloseReason {
        self.connection.violated(&error.violation(Culprit::Client))
    }

    /// A long message of which the first part is here: its body decides where the rest goes.
    fn begin_long(&mut self, rest: &[u8], header: &Header) -> Result<Option<usize>, CloseReason> {
        match Request::read_first(header, rest) {
            Ok(Some(_)) => self.begin(rest, header, None),
            // A body in front is held whole: it has the length of a document.
            Ok(None) if rest.len() >= self.scene.settings.held_bytes_max && !begins_with_body(rest) => {
                self.refuse_long(rest, header);
                Ok(Some(rest.len()))
            }
            Ok(None) => Ok(self.in_part()),
            Err(error) => Err(self.broken(error)),
        }
    }

    /// The body of a message stands behind more bytes than one client may have here (M17).
    fn refuse_long(&mut self, rest: &[u8], header: &Header) {
        let refusal = Refusal::too_large(self.scene.settings.held_bytes_max);
        self.session.refuse_unread(header, rest, &refusal, &mut self.own);
        self.give_own();
        self.skip(header.bytes - rest.len());
    }

    /// The next bytes are of no use. They have the time of a message.
    pub(super) fn skip(&mut self, bytes: usize) {
        self.partial_since = Some(turn::now());
        self.stage = Stage::Skipping(bytes);
    }

    /// A compressed message: the gateway inflates it, as its flags and its command are inside.
    fn begin_compressed(&mut self, message: &[u8]) -> Result<Option<usize>, CloseReason> {
        let compressed = Compressed::read(message).map_err(|error| self.broken(error))?;
        if !self.scene.settings.compressors.contains(&compressed.compressor) {
            return Err(self.broken(MessageError::Compressor(compressed.compressor.number())));
        }
        if compressed.inflated > self.session.message_bytes_max() {
            return Err(self.broken(MessageError::InflatedSize { claimed: compressed.inflated as i32 }));
        }
        // One that waits for a server is here in both forms.
        if !has_room_for(&self.connection.handle, compressed.inflated + message.len()) {
            self.connection.service.metrics.shed("buffered_bytes");
            return Err(CloseReason::Ended("buffered_bytes"));
        }
        let mut inflated = mem::take(&mut self.inflated);
        inflated.clear();
        if let Err(error) = compressed.inflate(&mut inflated) {
            return Err(self.connection.violated(&error.violation(Culprit::Client)));
        }
        self.scene.service.metrics.inflated(compressed.compressor, inflated.len());
        let header = match Header::read(&inflated) {
            Ok(Some(header)) if header.op_code == OpCode::Msg => header,
            _ => return Err(self.broken(MessageError::OpCode(compressed.op_code.number()))),
        };
        let packed = Some((message, compressed.compressor));
        let begun = self.begin(&inflated, &header, packed)?;
        if matches!(self.stage, Stage::Routed(_)) {
            // It has grown as it came, to as much as twice its length.
            inflated.shrink_to_fit();
            (self.inflated, self.packed) = (inflated, message.to_vec());
        }
        // Where the request waits for something else than a server, it is inflated again.
        let is_taken = begun.is_some() || matches!(self.stage, Stage::Routed(_));
        Ok(is_taken.then_some(message.len()))
    }

    /// A request whose body is in `bytes`.
    fn begin(&mut self, bytes: &[u8], header: &Header, packed: Packed<'_>) -> Result<Option<usize>, CloseReason> {
        self.partial_since = None;
        if self.scene.presented.is_none() {
            self.stage = Stage::Unpresented;
            return Ok(None);
        }
        let is_whole = bytes.len() == header.bytes;
        let request = match is_whole {
            true => Request::read(bytes),
            false => Request::read_first(header, bytes).and_then(|request| request.ok_or(MessageError::Short)),
        };
        let request = request.map_err(|error| self.broken(error))?;
        if !self.session.login().is_done() || !self.is_described {
            if self.holds_back(&request)? {
                return Ok(None);
            }
            self.describe(&request);
        }
        self.is_unacknowledged = request.is_unacknowledged();
        self.scene.tally.borrow_mut().is_judged = false;
        let before = self.session.login().failures();
        let io = self.scene.io(is_whole.then_some(bytes));
        let next = self.session.on_request(&request, &io, &mut self.own);
        self.lease.wanted = turn::now();
        match next {
            Next::Take(want) => return self.take(want, bytes, header, packed),
            Next::Replied => {
                self.log_refusal("refused", header.bytes as u64);
                self.answer(before, None)?;
            }
            Next::Wait => {
                self.give_own();
                if self.session.is_awaiting() {
                    self.stage = Stage::Awaiting;
                }
            }
            Next::Derive(derivation) => self.derive(*derivation),
            Next::Relay(own) => {
                let message = own.as_deref().unwrap_or(bytes).to_vec();
                self.relay(message);
            }
            Next::Close(violation) => self.answer(before, Some(violation))?,
        }
        self.show_login();
        if !is_whole && matches!(self.stage, Stage::Request) {
            self.skip(header.bytes - bytes.len());
        }
        Ok(Some(bytes.len()))
    }

    /// Gets a server for a request, and sends it as far as it is here.
    fn take(
        &mut self,
        want: Want,
        bytes: &[u8],
        header: &Header,
        packed: Packed<'_>,
    ) -> Result<Option<usize>, CloseReason> {
        self.note_command(header);
        match self.acquire(want) {
            Some(server) => {
                self.attach(server);
                match packed {
                    Some(packed) => self.send_packed(bytes, packed),
                    None => self.send(bytes, header)?,
                }
                Ok(Some(bytes.len()))
            }
            None => {
                let packed = packed.map(|(_, compressor)| compressor);
                self.stage = Stage::Routed(Routed { header: *header, packed, want });
                Ok(None)
            }
        }
    }

    /// Sends the first part of a request, or all of it.
    pub(super) fn send(&mut self, bytes: &[u8], header: &Header) -> Result<(), CloseReason> {
        if bytes.len() == header.bytes {
            self.lease.append(bytes);
            self.sent();
            return Ok(());
        }
        let sections = SectionFramer::of_request(header, bytes).map_err(|error| self.broken(error))?;
        self.lease.append(bytes);
        // The whole of it has the time of a message.
        self.partial_since = Some(turn::now());
        self.stage = Stage::Sending(Box::new(Sending { left: header.bytes - bytes.len(), sections }));
        Ok(())
    }

    /// Sends an inflated request: as it came, if the server has agreed on its compressor, else inflated.
    pub(super) fn send_packed(&mut self, inflated: &[u8], (packed, compressor): (&[u8], Compressor)) {
        if self.lease.server.as_ref().is_some_and(|server| server.has(compressor)) {
            self.lease.replies.begin(Some(compressor));
            self.lease.append(packed);
        } else {
            self.lease.append(inflated);
        }
        self.sent();
    }

    /// More of a request that is on its way. Returns how many bytes of `rest` were of it. A flaw ends both connections: the server acts
    /// on whole messages alone.
    fn forward(&mut self, rest: &[u8]) -> Result<usize, CloseReason> {
        let Stage::Sending(sending) = &mut self.stage else { return Ok(0) };
        let part = &rest[..rest.len().min(sending.left)];
        let taken = sending.sections.take(part);
        sending.left -= part.len();
        let is_end = sending.left == 0;
        let is_flawed = is_end && !sending.sections.is_end();
        taken.map_err(|error| self.broken(error))?;
        if is_flawed {
            return Err(self.broken(MessageError::Short));
        }
        self.lease.append(part);
        if is_end {
            self.partial_since = None;
            self.sent();
        }
        Ok(part.len())
    }

    /// The last byte of a request was given to the server's connection.
    fn sent(&mut self) {
        if !self.session.on_sent() {
            self.stage = Stage::Replying;
            return;
        }
        // The client's next request must not overtake the write, and another client must not get a reply to it.
        self.lease.append_barrier();
        self.stage = Stage::Flushing;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_room_of_a_long_message_does_not_stay() {
        let mut input = vec![1; 4 << 20];
        input.drain(1..);
        shrink(&mut input);
        assert!(input == [1] && input.capacity() < 64);
        input.clear();
        shrink(&mut input);
        assert_eq!(input.capacity(), 0);
    }
}
