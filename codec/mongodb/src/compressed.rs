//! OP_COMPRESSED: another message behind a head of nine bytes. Weir relays it as it came; only a caller that needs the body inflates it.
//! [`write`](write()) is for the two ends of a connection.
//!
//! Source: "OP_COMPRESSED" of the driver specifications. Every bound is known before the first byte is inflated: the size that the
//! head claims, a ratio to the bytes that are there, and the size of a message.

use std::io::Read as _;

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};
use ruzstd::decoding::StreamingDecoder;
use ruzstd::encoding::{CompressionLevel, compress};

use crate::error::{InflateError, MessageError};
use crate::header::{HEADER_BYTES, Header, OpCode};
use crate::limits::{INFLATE_FREE_BYTES, INFLATE_RATIO_MAX, MESSAGE_BYTES_MAX, ZSTD_WINDOW_BYTES_MAX};

/// Bytes behind the header: the opcode inside, its size without a header, and the compressor.
const HEAD_BYTES: usize = 9;

/// A compressor. Its number is that on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Compressor {
    /// Nothing is compressed.
    Noop,
    /// Snappy, as one block.
    Snappy,
    /// Zlib.
    Zlib,
    /// Zstandard.
    Zstd,
}

impl Compressor {
    /// Every compressor that may be negotiated, in the order that Weir prefers.
    pub const NEGOTIABLE: [Self; 3] = [Self::Zstd, Self::Snappy, Self::Zlib];

    /// From its number on the wire.
    pub const fn of(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Noop),
            1 => Some(Self::Snappy),
            2 => Some(Self::Zlib),
            3 => Some(Self::Zstd),
            _ => None,
        }
    }

    /// Its number on the wire.
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// Its name in hello.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Noop => "noop",
            Self::Snappy => "snappy",
            Self::Zlib => "zlib",
            Self::Zstd => "zstd",
        }
    }

    /// The one with this name in hello, of those that may be negotiated.
    pub fn from_name(name: &[u8]) -> Option<Self> {
        Self::NEGOTIABLE.into_iter().find(|compressor| compressor.name().as_bytes() == name)
    }
}

/// Commands that are never compressed, as the specification lists them.
pub fn is_never_compressed(command: &[u8]) -> bool {
    matches!(
        command,
        b"hello"
            | b"isMaster"
            | b"ismaster"
            | b"saslStart"
            | b"saslContinue"
            | b"getnonce"
            | b"authenticate"
            | b"createUser"
            | b"updateUser"
            | b"copydbSaslStart"
            | b"copydbgetnonce"
            | b"copydb"
    )
}

/// A compressed message.
#[derive(Clone, Copy, Debug)]
pub struct Compressed<'a> {
    header: Header,
    /// The opcode inside.
    pub op_code: OpCode,
    /// Bytes of the message inside, with a header.
    pub inflated: usize,
    /// The compressor.
    pub compressor: Compressor,
    data: &'a [u8],
}

impl<'a> Compressed<'a> {
    /// Reads the heads of a whole message.
    ///
    /// # Errors
    /// The message is another opcode, or its head is impossible.
    pub fn read(message: &'a [u8]) -> Result<Self, MessageError> {
        let header = Header::read(message)?.ok_or(MessageError::Short)?;
        if header.op_code != OpCode::Compressed {
            return Err(MessageError::OpCode(header.op_code.number()));
        }
        if header.bytes != message.len() {
            return Err(MessageError::Length { claimed: header.bytes as i32 });
        }
        let (head, data) = message[HEADER_BYTES..].split_first_chunk::<HEAD_BYTES>().ok_or(MessageError::Short)?;
        let number = |at: usize| i32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let op_code = match OpCode::of(number(0)) {
            Some(OpCode::Compressed) => return Err(MessageError::Nested),
            Some(op_code) => op_code,
            None => return Err(MessageError::OpCode(number(0))),
        };
        let claimed = number(4);
        let inflated = usize::try_from(claimed).ok().filter(|size| *size <= MESSAGE_BYTES_MAX - HEADER_BYTES);
        let inflated = inflated.ok_or(MessageError::InflatedSize { claimed })? + HEADER_BYTES;
        let compressor = Compressor::of(head[8]).ok_or(MessageError::Compressor(head[8]))?;
        Ok(Self { header, op_code, inflated, compressor, data })
    }

    /// Appends the message inside, with a header of its own. Nothing is appended that the compressor did not write. After an error
    /// `out` is as it was.
    ///
    /// # Errors
    /// The bytes are broken, inflate to another size than the head claims, or would grow beyond the ratio.
    pub fn inflate(&self, out: &mut Vec<u8>) -> Result<(), InflateError> {
        let size = self.inflated - HEADER_BYTES;
        if size > INFLATE_FREE_BYTES.max(self.data.len() * INFLATE_RATIO_MAX) {
            return Err(InflateError::Ratio);
        }
        let start = out.len();
        Header { bytes: self.inflated, op_code: self.op_code, ..self.header }.write(out);
        let inflated = match self.compressor {
            Compressor::Noop => noop(self.data, size, out),
            Compressor::Snappy => snappy(self.data, size, out),
            Compressor::Zlib => zlib(self.data, size, out),
            Compressor::Zstd => zstd(self.data, size, out),
        };
        let inflated = inflated.and(if out.len() - start == self.inflated { Ok(()) } else { Err(InflateError::Size) });
        if inflated.is_err() {
            out.truncate(start);
        }
        inflated
    }
}

/// Appends a whole message, compressed. One that would shrink beyond the limit of [`Compressed::inflate`] is appended as it is, which
/// either side may do at any time.
///
/// # Errors
/// `message` has no header of its own length, or is compressed.
pub fn write(out: &mut Vec<u8>, message: &[u8], compressor: Compressor) -> Result<(), MessageError> {
    let header = Header::read(message)?.ok_or(MessageError::Short)?;
    if header.bytes != message.len() {
        return Err(MessageError::Length { claimed: header.bytes as i32 });
    }
    if header.op_code == OpCode::Compressed {
        return Err(MessageError::Nested);
    }
    let (start, data) = (out.len(), &message[HEADER_BYTES..]);
    Header { bytes: 0, op_code: OpCode::Compressed, ..header }.write(out);
    out.extend_from_slice(&header.op_code.number().to_le_bytes());
    out.extend_from_slice(&(data.len() as u32).to_le_bytes());
    out.push(compressor.number());
    let head = out.len();
    match compressor {
        Compressor::Noop => out.extend_from_slice(data),
        Compressor::Snappy => snappy_of(data, out),
        Compressor::Zlib => zlib_of(data, out),
        Compressor::Zstd => compress(data, &mut *out, CompressionLevel::Fastest),
    }
    let (bytes, compressed) = (out.len() - start, out.len() - head);
    if bytes > MESSAGE_BYTES_MAX || data.len() > INFLATE_FREE_BYTES.max(compressed * INFLATE_RATIO_MAX) {
        out.truncate(start);
        out.extend_from_slice(message);
    } else {
        out[start..start + 4].copy_from_slice(&(bytes as u32).to_le_bytes());
    }
    Ok(())
}

fn snappy_of(data: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    out.resize(start + snap::raw::max_compress_len(data.len()), 0);
    let written = snap::raw::Encoder::new().compress(data, &mut out[start..]);
    // Only a buffer that is too short, or data of 4 GiB, would fail.
    out.truncate(start + written.unwrap_or(0));
}

fn zlib_of(data: &[u8], out: &mut Vec<u8>) {
    let mut deflater = Compress::new(Compression::default(), true);
    loop {
        out.reserve(4096.max(data.len() / 8));
        let read = deflater.total_in() as usize;
        let status = deflater.compress_vec(&data[read..], out, FlushCompress::Finish);
        // It fails on a wrong order of calls alone.
        if !matches!(status, Ok(Status::Ok | Status::BufError)) {
            return;
        }
    }
}

fn noop(data: &[u8], size: usize, out: &mut Vec<u8>) -> Result<(), InflateError> {
    if data.len() != size {
        return Err(InflateError::Size);
    }
    out.extend_from_slice(data);
    Ok(())
}

/// A block of Snappy names its size as well, and a copy of 64 bytes needs three: the size is in proportion to the bytes that came.
fn snappy(data: &[u8], size: usize, out: &mut Vec<u8>) -> Result<(), InflateError> {
    let claimed = snap::raw::decompress_len(data).map_err(|_| InflateError::Broken)?;
    if claimed != size {
        return Err(InflateError::Size);
    }
    if size > data.len().saturating_mul(64) {
        return Err(InflateError::Ratio);
    }
    let start = out.len();
    out.resize(start + size, 0);
    let written = snap::raw::Decoder::new().decompress(data, &mut out[start..]).map_err(|_| InflateError::Broken)?;
    out.truncate(start + written);
    Ok(())
}

/// The output grows with the bytes that are written.
fn zlib(data: &[u8], size: usize, out: &mut Vec<u8>) -> Result<(), InflateError> {
    let mut inflater = Decompress::new(true);
    let start = out.len();
    loop {
        let written = out.len() - start;
        // One byte more than is due: a message that is too long shows itself.
        let room = (size + 1 - written).min(written.max(4096));
        out.reserve(room);
        let read = inflater.total_in() as usize;
        let status = inflater.decompress_vec(&data[read..], out, FlushDecompress::None);
        let is_idle = out.len() - start == written && inflater.total_in() as usize == read;
        match status.map_err(|_| InflateError::Broken)? {
            Status::StreamEnd if inflater.total_in() as usize == data.len() => return Ok(()),
            Status::StreamEnd => return Err(InflateError::Size),
            _ if out.len() - start > size => return Err(InflateError::Size),
            _ if is_idle => return Err(InflateError::Broken),
            _ => {}
        }
    }
}

/// The output grows with the bytes that are written; the decoder itself holds a window of them.
fn zstd(data: &[u8], size: usize, out: &mut Vec<u8>) -> Result<(), InflateError> {
    match window(data) {
        Some(Window::Sized(content)) if content != size as u64 => return Err(InflateError::Size),
        Some(Window::Sized(_)) => {}
        Some(Window::Bytes(window)) if window <= ZSTD_WINDOW_BYTES_MAX => {}
        Some(Window::Bytes(_)) => return Err(InflateError::Ratio),
        None => return Err(InflateError::Broken),
    }
    let mut rest = data;
    let decoder = StreamingDecoder::new(&mut rest).map_err(|_| InflateError::Broken)?;
    decoder.take(size as u64 + 1).read_to_end(out).map_err(|_| InflateError::Broken)?;
    if rest.is_empty() { Ok(()) } else { Err(InflateError::Size) }
}

/// The bytes that a decoder must hold.
enum Window {
    /// All: the frame names its content's size.
    Sized(u64),
    /// So many.
    Bytes(u64),
}

/// Reads the head of a frame (RFC 8878, 3.1.1.1); `None`: it is none.
fn window(frame: &[u8]) -> Option<Window> {
    let rest = frame.strip_prefix(&0xfd2f_b528_u32.to_le_bytes())?;
    let (&descriptor, rest) = rest.split_first()?;
    let is_single = descriptor & 0x20 != 0;
    if !is_single {
        let (base, eighths) = (1_u64 << (10 + (rest.first()? >> 3)), u64::from(rest[0] & 7));
        return Some(Window::Bytes(base + base / 8 * eighths));
    }
    let dictionary = [0, 1, 2, 4][usize::from(descriptor & 3)];
    let content = rest.get(dictionary..)?;
    Some(Window::Sized(match descriptor >> 6 {
        0 => u64::from(*content.first()?),
        1 => u64::from(u16::from_le_bytes(*content.first_chunk()?)) + 256,
        2 => u64::from(u32::from_le_bytes(*content.first_chunk()?)),
        _ => u64::from_le_bytes(*content.first_chunk()?),
    }))
}
