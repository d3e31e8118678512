//! WebSocket behind an upgrade: every frame goes back as it came, without its mask, so messages and their fragments keep
//! their order and their size (RFC 6455).

use weir_websocket_codec::{FrameHeader, Opcode, Sender, WireError, close_frame};

const FINAL: u8 = 0x80;

/// The frames of one client.
#[derive(Default)]
pub struct Echo {
    /// The current frame; `None`: between frames.
    frame: Option<Frame>,
    is_closed: bool,
}

struct Frame {
    mask: [u8; 4],
    /// Payload that is still to come.
    left: u64,
    /// A pong says nothing that has to go back.
    is_dropped: bool,
    is_close: bool,
}

/// Result of [`Echo::step`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stepped {
    /// Bytes of the input that are spent.
    pub taken: usize,
    /// It began the last frame of a message.
    pub is_message: bool,
}

impl Echo {
    /// The client has said its last: nothing more is read.
    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// A header, or a piece of a payload; `None`: more is needed.
    ///
    /// # Errors
    /// The client broke a rule; `out` has the close frame that says so.
    pub fn step(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<Option<Stepped>, WireError> {
        let Some(frame) = &mut self.frame else {
            return match self.header(input, out) {
                Err(error) => {
                    close_frame(Sender::Server, error.close_code(), "", out);
                    Err(error)
                }
                header => header,
            };
        };
        let taken = usize::try_from(frame.left).unwrap_or(usize::MAX).min(input.len());
        if !frame.is_dropped {
            let mask = frame.mask;
            out.extend(input[..taken].iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
            // The next piece begins in the middle of the mask.
            frame.mask.rotate_left(taken % 4);
        }
        frame.left -= taken as u64;
        if frame.left == 0 {
            self.is_closed = frame.is_close;
            self.frame = None;
        }
        Ok((taken > 0).then_some(Stepped { taken, is_message: false }))
    }

    fn header(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<Option<Stepped>, WireError> {
        let Some(header) = FrameHeader::read(input)? else { return Ok(None) };
        let Some(mask) = header.mask else { return Err(WireError::Mask) };
        if header.reserved != 0 {
            return Err(WireError::ReservedBits);
        }
        let is_control = header.opcode.is_control();
        if is_control && (!header.is_final || header.payload > 125) {
            return Err(WireError::ControlFrame);
        }
        let opcode = match header.opcode {
            Opcode::Continuation => 0,
            Opcode::Text => 1,
            Opcode::Binary => 2,
            Opcode::Close => 8,
            // A ping is answered by a pong.
            Opcode::Ping | Opcode::Pong => 10,
        };
        let is_dropped = header.opcode == Opcode::Pong;
        let is_close = header.opcode == Opcode::Close;
        if !is_dropped {
            out.push(if header.is_final { FINAL } else { 0 } | opcode);
            length(header.payload, out);
        }
        if header.payload == 0 {
            self.is_closed = is_close;
        } else {
            self.frame = Some(Frame { mask, left: header.payload, is_dropped, is_close });
        }
        Ok(Some(Stepped { taken: header.bytes, is_message: header.is_final && !is_control }))
    }
}

fn length(payload: u64, out: &mut Vec<u8>) {
    match payload {
        0..126 => out.push(payload as u8),
        126..65_536 => {
            out.push(126);
            out.extend_from_slice(&(payload as u16).to_be_bytes());
        }
        _ => {
            out.push(127);
            out.extend_from_slice(&payload.to_be_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn masked(first: u8, payload: &[u8]) -> Vec<u8> {
        let mask = [1, 2, 3, 4];
        let mut bytes = vec![first, 0xfe];
        bytes.extend_from_slice(&(payload.len() as u16).to_be_bytes());
        bytes.extend_from_slice(&mask);
        bytes.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
        bytes
    }

    /// The output for `input`, cut into pieces of `size`; and its number of messages.
    fn replies_to(input: &[u8], size: usize) -> (Vec<u8>, u32, bool) {
        let (mut echo, mut out, mut kept, mut messages) = (Echo::default(), Vec::new(), Vec::new(), 0);
        for piece in input.chunks(size) {
            kept.extend_from_slice(piece);
            while let Some(stepped) = echo.step(&kept, &mut out).expect("valid") {
                kept.drain(..stepped.taken);
                messages += u32::from(stepped.is_message);
            }
        }
        (out, messages, echo.is_closed())
    }

    #[test]
    fn frames_go_back_without_their_mask_however_they_are_cut() {
        let long = vec![b'y'; 300];
        let input =
            [masked(0x82, b"hello"), masked(0x01, b"a"), masked(0x89, b"p"), masked(0x8a, b"q"), masked(0x80, &long)]
                .concat();
        let mut requested_body = b"\x82\x05hello\x01\x01a\x8a\x01p\x80\x7e\x01\x2c".to_vec();
        requested_body.extend_from_slice(&long);
        for size in [1, 2, 3, 5, 7, 1_000] {
            assert_eq!(replies_to(&input, size), (requested_body.clone(), 2, false), "pieces of {size}");
        }
        assert_eq!(replies_to(&masked(0x88, b"\x03\xe8"), 4), (b"\x88\x02\x03\xe8".to_vec(), 0, true));
    }

    #[test]
    fn a_client_that_does_not_mask_reads_why() {
        let mut out = Vec::new();
        assert_eq!(Echo::default().step(b"\x82\x01a", &mut out), Err(WireError::Mask));
        assert_eq!(&out[..4], b"\x88\x02\x03\xea");
    }
}
