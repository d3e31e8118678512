//! Bodies, both ways at once: what arrives goes out in the same turn, and who is not read from by the other side is not read.

use std::{
    future::poll_fn,
    io,
    task::{Context, Poll},
    time::Duration,
};

use weir_base::{limits, time::turn};
use weir_engine::{Deadline, Output, Reader};
use weir_http_codec::{BodyDecoder, BodyLength, BodyLimits, WireError, encode};

use crate::input::Input;

/// How a body is framed towards whoever takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// Its length was told, or the connection ends with it.
    Plain,
    /// In chunks, with or without trailers at the end.
    Chunked {
        /// The receiver wants to have them.
        with_trailers: bool,
    },
}

/// Why a body did not come to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    /// Who sends it broke a rule.
    Malformed(WireError),
    /// Who sends it went away.
    Cut,
    /// Who sends it paused for too long.
    Idle,
    /// It is longer than it may be.
    TooLong,
    /// Who takes it is gone, or takes nothing for too long.
    Untaken,
}

/// One direction of an exchange.
pub(crate) struct Flow<'a> {
    pub(crate) reader: &'a mut Reader,
    pub(crate) input: &'a mut Input,
    pub(crate) output: &'a Output,
    pub(crate) decoder: &'a mut BodyDecoder,
    pub(crate) framing: Framing,
    pub(crate) deadline: &'a Deadline,
    /// How long it may pause.
    pub(crate) idle_timeout: Duration,
    /// Bytes that were received for it.
    pub(crate) received: u64,
    /// Bytes of it that may still come.
    pub(crate) room: u64,
}

impl Flow<'_> {
    /// Moves the body to its end.
    pub(crate) async fn run(&mut self) -> Result<(), Broken> {
        while !self.decoder.is_done() {
            if self.input.bytes().is_empty() && !self.receive().await? {
                return self.end_of_connection();
            }
            self.pass_on()?;
            if self.output.is_congested() || self.output.is_closed() {
                relieved(self.output, self.deadline).await?;
            }
        }
        Ok(())
    }

    /// All that is there goes out.
    fn pass_on(&mut self) -> Result<(), Broken> {
        let limits = BodyLimits::default();
        while !self.input.bytes().is_empty() && !self.decoder.is_done() {
            let piece = self.decoder.decode(self.input.bytes(), &limits).map_err(Broken::Malformed)?;
            self.room = self.room.checked_sub(piece.data.len() as u64).ok_or(Broken::TooLong)?;
            self.output.with(|into| match self.framing {
                Framing::Plain => into.extend_from_slice(piece.data),
                Framing::Chunked { .. } => encode::chunk(piece.data, into),
            });
            let taken = piece.taken;
            self.input.spend(taken);
        }
        if self.decoder.is_done() {
            self.finish();
        }
        Ok(())
    }

    fn finish(&self) {
        if let Framing::Chunked { with_trailers } = self.framing {
            let trailers = self.decoder.trailers().filter(|_| with_trailers);
            self.output.with(|into| encode::last_chunk(trailers, into));
        }
    }

    fn end_of_connection(&self) -> Result<(), Broken> {
        if !self.decoder.ends_with_connection() {
            return Err(Broken::Cut);
        }
        self.finish();
        Ok(())
    }

    /// False once the connection has ended.
    async fn receive(&mut self) -> Result<bool, Broken> {
        self.deadline.set(turn::now().saturating_add(self.idle_timeout));
        let received = receive(self.reader, self.input, self.deadline).await;
        let count = received.ok_or(Broken::Idle)?.map_err(|_| Broken::Cut)?;
        self.received += count as u64;
        Ok(count > 0)
    }
}

/// More of a connection, or `None` when the deadline has passed.
pub(crate) async fn receive(reader: &mut Reader, input: &mut Input, deadline: &Deadline) -> Option<io::Result<usize>> {
    poll_fn(|context: &mut Context<'_>| {
        if let Poll::Ready(received) = input.poll_more(reader, context) {
            return Poll::Ready(Some(received));
        }
        deadline.poll_expired(context).map(|()| None)
    })
    .await
}

/// Waits until the output has room; who takes nothing for [`limits::WRITE_IDLE_TIMEOUT`] is given up.
pub(crate) async fn relieved(output: &Output, deadline: &Deadline) -> Result<(), Broken> {
    while output.is_congested() {
        let progress = output.progress();
        deadline.set(turn::now().saturating_add(limits::WRITE_IDLE_TIMEOUT));
        let is_relieved = poll_fn(|context| {
            if output.poll_relieved(context).is_ready() {
                return Poll::Ready(true);
            }
            deadline.poll_expired(context).map(|()| false)
        });
        if !is_relieved.await && output.progress() == progress {
            return Err(Broken::Untaken);
        }
    }
    if output.is_closed() { Err(Broken::Untaken) } else { Ok(()) }
}

/// How a body of this length is framed for a peer that can take chunks or not.
pub(crate) fn framing_of(length: BodyLength, has_chunks: bool, with_trailers: bool) -> Framing {
    match length {
        BodyLength::Exact(_) => Framing::Plain,
        BodyLength::Chunked | BodyLength::UntilClose if has_chunks => Framing::Chunked { with_trailers },
        BodyLength::Chunked | BodyLength::UntilClose => Framing::Plain,
    }
}
