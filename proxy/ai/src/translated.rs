//! Translated responses while they pass, with the provider's own report of usage.

use bytes::Bytes;
use weir_ai_session::{BufferedUsage, End, Failure, Progress, ResponseStream, UsageChunk};
use weir_ai_translate::{Direction, Mistake, StreamError, StreamTranslator, translate_error, translate_response};
use weir_base::{ByteLease, BytesPermit};
use weir_http::filter::{BodyAborted, ReplacedResponse};
use weir_http_codec::{Fields, Known};
use weir_sse_codec::Limits;

use crate::{
    error::{ApiError, ErrorForm, no_room},
    response::{Found, of_stream},
    translate::{CONTENT_TYPE, Translation, name_losses},
};

/// Bytes of memory of a stream that are not charged. Default 64 KiB, as for a stream that passes: the usual stream has less, and needs no room
/// to go on.
const FREE_BYTES: u64 = 64 * 1024;

/// A stream of events that is translated event by event.
///
/// It holds the event that a piece cuts twice, at most 1 MiB each time: once for the usage, once for the translation. Beyond [`FREE_BYTES`]
/// its memory is charged to `limits.buffered_bytes`.
pub(crate) struct TranslatedStream {
    /// Follows the provider's own events. Their bytes go nowhere.
    followed: ResponseStream,
    translator: StreamTranslator,
    /// For its memory.
    permit: BytesPermit,
    /// The stream cannot go on. The events before that pass first.
    failed: Option<StreamFault>,
}

/// The reason why a stream cannot go on.
enum StreamFault {
    /// The provider has broken a limit or its dialect.
    Provider(StreamError),
    /// There is no memory for it.
    NoRoom,
}

impl TranslatedStream {
    /// In front of the body. `created`: the time in seconds since 1970.
    pub(crate) fn new(translation: &Translation, created: u64, lease: &ByteLease) -> Self {
        let (direction, limits) = (translation.direction, Limits::default());
        Self {
            permit: lease.empty(),
            followed: ResponseStream::new(direction.provider(), UsageChunk::Forward, limits),
            translator: StreamTranslator::new(direction, created, translation.includes_usage, limits),
            failed: None,
        }
    }

    /// Takes a piece, and appends the events that go on. A failure shows at the next [`flush`](Self::flush) or
    /// [`end`](Self::end), so that it loses none of them.
    pub(crate) fn edit(&mut self, piece: &[u8], out: &mut Vec<u8>) {
        if self.failed.is_some() {
            return;
        }
        // Its limits are those of the translation, which fails at the same byte.
        let _ = self.followed.push(piece, &mut |_| {});
        self.failed = self.translator.push(piece, out).err().map(StreamFault::Provider);
        let memory = self.followed.memory_bytes() + self.translator.memory_bytes();
        if !self.permit.resize(memory.saturating_sub(FREE_BYTES)) {
            self.failed.get_or_insert(StreamFault::NoRoom);
        }
    }

    /// Nothing more is there at the moment.
    ///
    /// # Errors
    /// The stream cannot go on.
    pub(crate) fn flush(&self) -> Result<(), BodyAborted> {
        if self.failed.is_some() { Err(BodyAborted) } else { Ok(()) }
    }

    /// The body is over.
    ///
    /// # Errors
    /// The stream cannot go on, or its end is missing.
    pub(crate) fn end(&mut self, out: &mut Vec<u8>) -> Result<Found, BodyAborted> {
        self.flush()?;
        self.followed.finish(&mut |_| {});
        match self.translator.finish(out) {
            Ok(End::Missing) => Err(BodyAborted),
            Ok(End::Done | End::Failed) => Ok(self.found()),
            Err(error) => {
                self.failed = Some(StreamFault::Provider(error));
                Err(BodyAborted)
            }
        }
    }

    /// The body breaks off: appends an error event, unless the last event is there already.
    pub(crate) fn break_off(&mut self, failure: &Failure<'_>, out: &mut Vec<u8>) -> Found {
        let found = self.found();
        match &self.failed {
            Some(StreamFault::Provider(StreamError::Event(mistake))) => {
                tracing::debug!(%mistake, "an event of a provider cannot be translated");
                self.translator.fail(&Mistake::failure(), out);
            }
            Some(StreamFault::NoRoom) => self.translator.fail(&no_room(), out),
            _ if self.translator.end() == End::Missing => self.translator.fail(failure, out),
            _ => {}
        }
        self.permit.shrink(u64::MAX);
        found
    }

    pub(crate) fn found(&self) -> Found {
        of_stream(&self.followed)
    }
}

/// A whole response that is held, and replaced by its translation.
pub(crate) struct HeldResponse {
    direction: Direction,
    form: ErrorForm,
    created: u64,
    /// Follows the usage of a 2xx.
    usage: Option<BufferedUsage>,
    bytes: u64,
    found: Option<Found>,
}

impl HeldResponse {
    /// In front of a body whose status is `status`. `length`: the one that its head declares.
    pub(crate) fn new(
        translation: &Translation,
        form: ErrorForm,
        created: u64,
        status: u16,
        length: Option<u64>,
    ) -> Self {
        let direction = translation.direction;
        let usage = (200..300).contains(&status).then(|| BufferedUsage::new(direction.provider(), length));
        Self { direction, form, created, usage, bytes: 0, found: None }
    }

    /// Takes a piece of the body.
    pub(crate) fn follow(&mut self, piece: &[u8]) {
        self.bytes += piece.len() as u64;
        if let Some(usage) = &mut self.usage {
            usage.push(piece);
        }
    }

    /// The response for the client, with its fields.
    pub(crate) fn replace(&mut self, status: u16, fields: &mut Fields, body: &[u8]) -> ReplacedResponse {
        if let Some(usage) = self.usage.as_ref().map(BufferedUsage::finish) {
            let progress = if usage.is_none() { self.estimated() } else { self.progress() };
            self.found = Some(Found { usage, progress, is_done: true, is_failed: false });
        }
        fields.set(Known::ContentType, CONTENT_TYPE);
        if status >= 400 {
            let (status, body) = translate_error(self.direction, status, body);
            return ReplacedResponse { status, body: body.into() };
        }
        match translate_response(self.direction, body, self.created) {
            Ok(response) => {
                name_losses(&response.losses, fields);
                ReplacedResponse { status, body: response.body.into() }
            }
            Err(mistake) => {
                tracing::debug!(%mistake, "a response of a provider cannot be translated");
                untranslatable(self.form, fields)
            }
        }
    }

    /// The findings so far. `None`: it is an error.
    pub(crate) fn found(&self) -> Option<Found> {
        let so_far = || self.usage.as_ref().map(|_| Found { progress: self.estimated(), ..Found::default() });
        self.found.or_else(so_far)
    }

    /// The size of the body of the provider stands for its output, as for a body that passes. It comes when all of it is generated.
    fn progress(&self) -> Progress {
        Progress { events: 1, output_events: 1, output_bytes: self.bytes, is_generated: true, ..Progress::default() }
    }

    /// The same with an estimate of its tokens.
    fn estimated(&self) -> Progress {
        let estimate = self.usage.as_ref().map(BufferedUsage::estimate).unwrap_or_default();
        Progress { estimate, ..self.progress() }
    }
}

/// The response in place of one that cannot be translated.
fn untranslatable(form: ErrorForm, fields: &mut Fields) -> ReplacedResponse {
    let error = ApiError::untranslatable();
    fields.set_named(b"x-should-retry", b"false");
    ReplacedResponse { status: error.status, body: Bytes::from(error.body(form)) }
}
