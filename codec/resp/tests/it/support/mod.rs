//! Drives a parser as a session would: bytes arrive in pieces, spent bytes are dropped.

use weir_resp::{ProtocolError, RequestLimits, RequestParser, Step};

/// One thing that happened on a client's connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    Command {
        args: Vec<Vec<u8>>,
        len: usize,
        inline: bool,
    },
    Skip {
        len: usize,
    },
    /// A streamed command: what was readable at its start, and the length of the whole once it ended.
    Streamed {
        args: Vec<Vec<u8>>,
        declared: u32,
        len: usize,
    },
    Failed(ProtocolError),
}

/// State of a connection after all its bytes.
#[derive(Debug, PartialEq, Eq)]
pub struct ParsedConnection {
    pub events: Vec<Event>,
    /// Bytes of an unfinished command.
    pub left: usize,
    /// The largest number of bytes that had to be kept, and heap bytes beside them.
    pub kept_max: usize,
    pub heap_max: usize,
}

/// Feeds `pieces` one after another.
pub fn run<'a>(pieces: impl IntoIterator<Item = &'a [u8]>, limits: &RequestLimits) -> ParsedConnection {
    let mut parser = RequestParser::new();
    let mut kept: Vec<u8> = Vec::new();
    let mut outcome = ParsedConnection { events: Vec::new(), left: 0, kept_max: 0, heap_max: 0 };
    let mut streamed: Option<(Vec<Vec<u8>>, u32, usize)> = None;
    for piece in pieces {
        kept.extend_from_slice(piece);
        loop {
            let turn = turn(&mut parser, &mut kept, &mut streamed, limits);
            outcome.heap_max = outcome.heap_max.max(parser.heap_bytes());
            match turn {
                Ok(Some(event)) => outcome.events.push(event),
                Ok(None) => break,
                Err(error) => {
                    outcome.events.push(Event::Failed(error));
                    return outcome;
                }
            }
        }
        outcome.kept_max = outcome.kept_max.max(kept.len());
        if kept.is_empty() {
            parser.release();
            assert!(parser.heap_bytes() == 0 || parser.is_relaying());
        }
    }
    outcome.left = kept.len();
    outcome
}

/// One call of the parser. `None`: it needs more bytes.
fn turn(
    parser: &mut RequestParser,
    kept: &mut Vec<u8>,
    streamed: &mut Option<(Vec<Vec<u8>>, u32, usize)>,
    limits: &RequestLimits,
) -> Result<Option<Event>, ProtocolError> {
    if parser.is_relaying() {
        let relay = parser.relay(kept)?;
        assert!(relay.taken <= kept.len() && (relay.done || relay.taken == kept.len()));
        kept.drain(..relay.taken);
        if let Some((_, _, len)) = streamed {
            *len += relay.taken;
        }
        let ended = streamed.take_if(|_| relay.done);
        return Ok(ended.map(|(args, declared, len)| Event::Streamed { args, declared, len }));
    }
    let args = |parser: &RequestParser, kept: &[u8]| parser.args(kept).map(<[u8]>::to_vec).collect::<Vec<_>>();
    match parser.parse(kept, limits)? {
        Step::Incomplete => Ok(None),
        Step::Skip { len } => {
            assert!(len > 0 && len <= kept.len());
            kept.drain(..len);
            Ok(Some(Event::Skip { len }))
        }
        Step::Command { len, inline } => {
            assert!(len > 0 && len <= kept.len() && parser.argc() > 0);
            let event = Event::Command { args: args(parser, kept), len, inline };
            kept.drain(..len);
            Ok(Some(event))
        }
        Step::Streaming { len } => {
            assert_eq!(len, kept.len());
            *streamed = Some((args(parser, kept), parser.args_declared(), len));
            kept.clear();
            Ok(None)
        }
    }
}
