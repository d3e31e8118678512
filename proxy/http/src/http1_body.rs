//! Bodies as HTTP/1.1 has them: by their length, in chunks, or until the connection ends.

use std::{
    future::poll_fn,
    io,
    task::{Context, Poll},
    time::Duration,
};

use weir_base::time::turn;
use weir_engine::{Deadline, Output, Reader};
use weir_http_codec::{BodyDecoder, BodyLength, BodyLimits, Fields, encode};

use crate::{
    body::{BodyError, Sink, Source, output_ready},
    input::Input,
};

/// The framing of a body towards its receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// The head has its length, or the connection ends with it.
    Plain,
    /// In chunks, with or without trailers at the end.
    Chunked {
        /// The receiver wants to have them.
        with_trailers: bool,
    },
}

impl Framing {
    /// For a body of this length and a peer that can take chunks or not.
    pub(crate) fn of(length: BodyLength, has_chunks: bool, with_trailers: bool) -> Self {
        match length {
            BodyLength::Exact(_) => Self::Plain,
            BodyLength::Chunked | BodyLength::UntilClose if has_chunks => Self::Chunked { with_trailers },
            BodyLength::Chunked | BodyLength::UntilClose => Self::Plain,
        }
    }
}

/// A body on its way in.
pub(crate) struct Http1Source<'a> {
    pub(crate) reader: &'a mut Reader,
    pub(crate) input: &'a mut Input,
    pub(crate) decoder: &'a mut BodyDecoder,
    pub(crate) deadline: &'a Deadline,
    /// Longest pause.
    pub(crate) idle_timeout: Duration,
    /// It has ended with its connection.
    pub(crate) is_ended: bool,
}

impl Source for Http1Source<'_> {
    fn is_done(&self) -> bool {
        self.is_ended || self.decoder.is_done()
    }

    async fn fill(&mut self) -> Result<(), BodyError> {
        if !self.input.bytes().is_empty() {
            return Ok(());
        }
        self.deadline.set(turn::now().saturating_add(self.idle_timeout));
        let received = receive(self.reader, self.input, self.deadline).await;
        let count = received.ok_or(BodyError::TimedOut)?.map_err(|_| BodyError::Cancelled)?;
        if count == 0 {
            if !self.decoder.ends_with_connection() {
                return Err(BodyError::Truncated);
            }
            self.is_ended = true;
        }
        Ok(())
    }

    fn pass(&mut self, sink: &mut impl Sink) -> Result<(), BodyError> {
        if self.is_ended {
            sink.end(None);
            return Ok(());
        }
        let limits = BodyLimits::default();
        while !self.input.bytes().is_empty() && !self.decoder.is_done() {
            let piece = self.decoder.decode(self.input.bytes(), &limits).map_err(BodyError::Malformed)?;
            let (taken, is_last) = (piece.taken, piece.is_last);
            match is_last {
                true if matches!(self.decoder, BodyDecoder::Exact(_)) => sink.last(piece.data),
                true => {
                    sink.data(piece.data);
                    sink.end(self.decoder.trailers());
                }
                false => sink.data(piece.data),
            }
            self.input.spend(taken);
        }
        Ok(())
    }
}

/// A body on its way out.
pub(crate) struct Http1Sink<'a> {
    pub(crate) output: &'a Output,
    pub(crate) framing: Framing,
    /// Deadline of the receiver.
    pub(crate) deadline: &'a Deadline,
}

impl Sink for Http1Sink<'_> {
    fn data(&mut self, data: &[u8]) {
        self.output.with(|into| match self.framing {
            Framing::Plain => into.extend_from_slice(data),
            Framing::Chunked { .. } => encode::chunk(data, into),
        });
    }

    fn end(&mut self, trailers: Option<&Fields>) {
        if let Framing::Chunked { with_trailers } = self.framing {
            self.output.with(|into| encode::last_chunk(trailers.filter(|_| with_trailers), into));
        }
    }

    async fn ready(&mut self) -> Result<(), BodyError> {
        match self.output.is_congested() || self.output.is_closed() {
            true => output_ready(self.output, self.deadline).await,
            false => Ok(()),
        }
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
