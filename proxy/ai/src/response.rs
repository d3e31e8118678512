//! The response of a provider while it passes, and its usage.

use weir_ai_session::{
    BufferedUsage, Dialect, End, Progress, ResponseStream, Usage, UsageChunk, estimate::TokenEstimate,
};
use weir_base::ByteLease;
use weir_http::filter::{BodyAborted, HoldLimits, ReplacedResponse, Tap};
use weir_http_codec::{Fields, Known};
use weir_sse_codec::Limits;

use crate::{
    error::{ErrorForm, failure},
    model_list::ModelList,
    translate::{ERROR_BYTES_MAX, MEMORY_PER_BYTE, RESPONSE_BYTES_MAX, Translation, response_fields},
    translated::{HeldResponse, TranslatedStream},
};

/// A response while it passes.
#[derive(Default)]
pub(crate) enum Response {
    /// There is none, or it is none of a model: an error, or one that cannot be read.
    #[default]
    None,
    /// Events, which are followed one by one.
    Stream(Box<ResponseStream>),
    /// A whole object, whose end is looked at.
    Whole(Box<BufferedUsage>),
    /// Events, which are translated one by one.
    TranslatedStream(Box<TranslatedStream>),
    /// A whole object, which is translated at its end.
    Held(Box<HeldResponse>),
    /// A list of models, some of which the key may not see.
    Models(ModelList),
    /// It is over.
    Over(Found),
}

/// The findings in a response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    /// The report of the provider.
    pub(crate) usage: Option<Usage>,
    /// Output that was seen.
    pub(crate) progress: Progress,
    /// The last event of its dialect has come, or all of a whole object.
    pub(crate) is_done: bool,
    /// The provider has reported an error in its stream.
    pub(crate) is_failed: bool,
}

impl Response {
    /// The response with this head, and how it is tapped.
    pub(crate) fn new(dialect: Dialect, chunk: UsageChunk, status: u16, fields: &Fields) -> (Self, Tap) {
        if !(200..300).contains(&status) || is_coded(fields) {
            return (Self::None, Tap::No);
        }
        if is_event_stream(fields) {
            // Only whole events may go on: an error may have to follow.
            return (Self::Stream(Box::new(ResponseStream::new(dialect, chunk, Limits::default()))), Tap::Edit);
        }
        (Self::Whole(Box::new(BufferedUsage::new(dialect, declared(fields)))), Tap::Follow)
    }

    /// The same of a provider that speaks another dialect than the client. `created`: the time in seconds since 1970. The fields get
    /// the names that they have for the client. `lease`: for the memory of a stream.
    pub(crate) fn translated(
        translation: &Translation,
        (form, created, lease): (ErrorForm, u64, &ByteLease),
        status: u16,
        fields: &mut Fields,
    ) -> (Self, Tap) {
        // The status of an error counts, and its body may miss.
        let may_be_cut = status >= 400;
        let bytes_max = match may_be_cut {
            // A coded body was not requested and cannot be read: no byte of it is held.
            _ if is_coded(fields) => 0,
            true => ERROR_BYTES_MAX,
            false => RESPONSE_BYTES_MAX,
        };
        let (is_stream, length) = (is_event_stream(fields), declared(fields));
        response_fields(translation, fields);
        match status {
            200..300 if is_stream && bytes_max > 0 => {
                (Self::TranslatedStream(Box::new(TranslatedStream::new(translation, created, lease))), Tap::Edit)
            }
            200..300 | 400.. => {
                let held = HeldResponse::new(translation, form, created, status, length);
                let limits = HoldLimits { bytes_max, memory_per_byte: MEMORY_PER_BYTE, may_be_cut };
                (Self::Held(Box::new(held)), Tap::Replace(limits))
            }
            _ => (Self::None, Tap::No),
        }
    }

    /// The same of a list of models for a key that may not see all.
    pub(crate) fn models(list: ModelList, status: u16, fields: &Fields) -> (Self, Tap) {
        match status {
            200..300 => (Self::Models(list), Tap::Replace(ModelList::limits(is_coded(fields)))),
            _ => (Self::None, Tap::No),
        }
    }
    /// Takes a piece of a whole object.
    pub(crate) fn follow(&mut self, piece: &[u8]) {
        match self {
            Self::Whole(whole) => whole.push(piece),
            Self::Held(held) => held.follow(piece),
            _ => {}
        }
    }

    /// Replaces a response that is held. `None`: this one is not.
    pub(crate) fn replace(&mut self, status: u16, fields: &mut Fields, body: &[u8]) -> Option<ReplacedResponse> {
        match self {
            Self::Held(held) => Some(held.replace(status, fields, body)),
            Self::Models(list) => Some(list.replace(status, fields, body)),
            _ => None,
        }
    }

    /// Takes a piece of a stream, and appends what goes on.
    ///
    /// # Errors
    /// A line or an event beyond its limit.
    pub(crate) fn edit(&mut self, piece: &[u8], out: &mut Vec<u8>) -> Result<(), BodyAborted> {
        match self {
            Self::Stream(stream) => {
                stream.push(piece, &mut |bytes| out.extend_from_slice(bytes)).map_err(|_| BodyAborted)
            }
            Self::TranslatedStream(stream) => {
                stream.edit(piece, out);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Nothing more of a stream is there at the moment.
    ///
    /// # Errors
    /// It cannot go on.
    pub(crate) fn flush(&self) -> Result<(), BodyAborted> {
        if let Self::TranslatedStream(stream) = self { stream.flush() } else { Ok(()) }
    }

    /// The body is over.
    ///
    /// # Errors
    /// A translated stream is not whole: it [breaks off](Self::break_off).
    pub(crate) fn end(&mut self, out: &mut Vec<u8>) -> Result<(), BodyAborted> {
        if let Self::TranslatedStream(stream) = self {
            *self = Self::Over(stream.end(out)?);
            return Ok(());
        }
        let found = match std::mem::take(self) {
            Self::Stream(mut stream) => {
                stream.finish(&mut |bytes| out.extend_from_slice(bytes));
                of_stream(&stream)
            }
            Self::Whole(whole) => {
                let usage = whole.finish();
                let estimate = if usage.is_none() { whole.estimate() } else { TokenEstimate::default() };
                Found {
                    usage,
                    is_done: true,
                    progress: Progress { estimate, ..Progress::default() },
                    ..Found::default()
                }
            }
            Self::Over(found) => found,
            other => {
                *self = other;
                return Ok(());
            }
        };
        *self = Self::Over(found);
        Ok(())
    }

    /// The body breaks off: appends an error event.
    pub(crate) fn break_off(&mut self, reason: &str, out: &mut Vec<u8>) {
        let found = match self {
            Self::Stream(stream) => {
                let found = of_stream(stream);
                stream.fail(&failure(reason), out);
                found
            }
            Self::TranslatedStream(stream) => stream.break_off(&failure(reason), out),
            _ => return,
        };
        *self = Self::Over(found);
    }

    /// The findings so far. `None`: it is no response of a model.
    pub(crate) fn found(&self) -> Option<Found> {
        match self {
            Self::None | Self::Models(_) => None,
            Self::Stream(stream) => Some(of_stream(stream)),
            Self::TranslatedStream(stream) => Some(stream.found()),
            Self::Whole(_) => Some(Found::default()),
            Self::Held(held) => held.found(),
            Self::Over(found) => Some(*found),
        }
    }
}

fn is_coded(fields: &Fields) -> bool {
    fields.all(Known::ContentEncoding).any(|coding| !coding.eq_ignore_ascii_case(b"identity"))
}

fn is_event_stream(fields: &Fields) -> bool {
    let media_type = fields.get(Known::ContentType).unwrap_or_default();
    let media_type = media_type.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    media_type.eq_ignore_ascii_case(b"text/event-stream")
}

/// The length that a head declares.
pub(crate) fn declared(fields: &Fields) -> Option<u64> {
    fields.get(Known::ContentLength).and_then(|value| std::str::from_utf8(value).ok()?.parse().ok())
}

pub(crate) fn of_stream(stream: &ResponseStream) -> Found {
    let end = stream.end();
    Found {
        usage: stream.usage(),
        progress: stream.progress(),
        is_done: end == End::Done,
        is_failed: end == End::Failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &[u8] = b"data: {\"choices\":[{\"delta\":{\"content\":\"abcd\"}}]}\n\n\
        data: {\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":2}}\n\ndata: [DONE]\n\n";

    fn response(lines: &[(&str, &str)], status: u16) -> (Response, Tap) {
        let mut fields = Fields::new();
        lines.iter().for_each(|(name, value)| fields.push(name.as_bytes(), value.as_bytes()));
        Response::new(Dialect::Chat, UsageChunk::Drop, status, &fields)
    }

    #[test]
    fn a_stream_loses_the_chunk_that_was_not_requested_and_is_counted() {
        let (mut response, tap) = response(&[("Content-Type", "Text/Event-Stream; charset=utf-8")], 200);
        assert_eq!(tap, Tap::Edit);
        let mut out = Vec::new();
        STREAM.chunks(7).for_each(|piece| response.edit(piece, &mut out).expect("within limits"));
        response.end(&mut out).expect("it is whole");
        assert_eq!(String::from_utf8_lossy(&out).matches("data: ").count(), 2);
        let found = response.found().expect("a response");
        assert_eq!((found.usage.map(|usage| (usage.input, usage.output)), found.is_done), (Some((3, 2)), true));
    }

    #[test]
    fn a_stream_that_breaks_off_keeps_its_findings_and_ends_with_an_error() {
        let (mut response, _) = response(&[("content-type", "text/event-stream")], 200);
        let mut out = Vec::new();
        response.edit(&STREAM[..80], &mut out).expect("within limits");
        response.break_off("idle_timeout", &mut out);
        let text = String::from_utf8_lossy(&out).into_owned();
        assert!(text.contains("\"code\":\"idle_timeout\"") && text.ends_with("\n\n"), "{text}");
        let found = response.found().expect("a response");
        assert!(!found.is_done && found.progress.output_bytes == 4, "{found:?}");
    }

    #[test]
    fn a_whole_object_reports_near_its_end() {
        let (mut response, tap) = response(&[("content-type", "application/json")], 200);
        assert_eq!(tap, Tap::Follow);
        response.follow(b"{\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":2}}");
        assert_eq!(response.found(), Some(Found::default()), "it is not over");
        response.end(&mut Vec::new()).expect("it is whole");
        let found = response.found().expect("a response");
        assert_eq!((found.usage.map(|usage| usage.output), found.is_done), (Some(2), true));
    }

    #[test]
    fn errors_and_coded_bodies_pass_as_they_are() {
        for (lines, status) in [(&[][..], 429), (&[("content-encoding", "gzip")], 200)] {
            let (response, tap) = response(lines, status);
            assert!(tap == Tap::No && response.found().is_none());
        }
    }
}
