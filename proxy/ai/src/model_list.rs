//! The list of a provider's models, without those that a key may not use.

use std::sync::Arc;

use bytes::Bytes;
use weir_http::filter::{HoldLimits, ReplacedResponse};
use weir_http_codec::{Fields, Known};
use weir_json_codec::{Duplicates, Kind, Node, Scanner, Sink, Value, decode};
use weir_spend::keys::Key;

use crate::{
    error::{ApiError, ErrorForm},
    models::may_use,
    translate::{CONTENT_TYPE, RESPONSE_BYTES_MAX},
};

/// Bytes of memory for each byte of a list: itself, the new one, and the places of its items.
const MEMORY_PER_BYTE: u32 = 6;

/// A list that is held until its end.
pub(crate) struct ModelList {
    key: Option<Arc<Key>>,
    form: ErrorForm,
}

impl ModelList {
    pub(crate) fn new(key: Option<Arc<Key>>, form: ErrorForm) -> Self {
        Self { key, form }
    }

    /// The bounds of a list. `is_coded`: it has a content coding that was not requested, and no byte of it is held.
    pub(crate) fn limits(is_coded: bool) -> HoldLimits {
        let bytes_max = if is_coded { 0 } else { RESPONSE_BYTES_MAX };
        HoldLimits { bytes_max, memory_per_byte: MEMORY_PER_BYTE, may_be_cut: false }
    }

    /// The list for the client. One that cannot be read would show what the key must not see: it becomes a 502.
    pub(crate) fn replace(&self, status: u16, fields: &mut Fields, body: &[u8]) -> ReplacedResponse {
        if let Some(body) = filtered(body, |name| may_use(self.key.as_deref(), name)) {
            return ReplacedResponse { status, body: body.into() };
        }
        let error = ApiError::UNREADABLE_LIST;
        fields.set(Known::ContentType, CONTENT_TYPE);
        ReplacedResponse { status: error.status, body: Bytes::from(error.body(self.form)) }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    List,
    Item,
    Id,
}

/// OpenAI's form and Anthropic's. An object has one id: lists in which readers could find two are not read.
static LIST: Node<Place> = Node::NEW.members(&[("data", Node::value(Place::List).items(&ITEM))]);
static ITEM: Node<Place> = Node::value(Place::Item).members(&[("id", Node::value(Place::Id))]);

/// Takes the items of a list.
struct Items<F> {
    may_use: F,
    /// Where the array is.
    list: Option<(usize, usize)>,
    /// Where each item is that stays.
    kept: Vec<(usize, usize)>,
    /// An item does not stay.
    has_removed: bool,
    /// The item under way stays.
    is_kept: bool,
}

impl<F: Fn(&str) -> bool> Sink<Place> for Items<F> {
    fn begin(&mut self, path: Place, _: Kind, _: u64) {
        if path == Place::Item {
            self.is_kept = false;
        }
    }

    fn value(&mut self, value: Value<'_, Place>) {
        let place = (value.start as usize, value.end as usize);
        match value.path {
            Place::Id => {
                let name = value.string().and_then(|raw| decode::text(raw, raw.len()).ok());
                self.is_kept = name.is_some_and(|name| (self.may_use)(&name));
            }
            // One without an id describes no model.
            Place::Item if value.kind == Kind::Object && self.is_kept => self.kept.push(place),
            Place::Item => self.has_removed = true,
            Place::List => self.list = Some(place).filter(|_| value.kind == Kind::Array),
        }
    }
}

/// A list without the items whose name `may_use` denies; all other bytes stay. `None`: it is no list.
///
/// The cursors of a list in pages (`first_id`, `last_id`) stay, since the next page follows from them.
fn filtered(body: &[u8], may_use: impl Fn(&str) -> bool) -> Option<Vec<u8>> {
    let mut items = Items { may_use, list: None, kept: Vec::new(), has_removed: false, is_kept: false };
    let mut scanner = Scanner::new(&LIST, Duplicates::Refuse);
    scanner.push(body, &mut items).and_then(|()| scanner.finish(&mut items)).ok()?;
    let (start, end) = items.list?;
    if !items.has_removed {
        return Some(body.to_vec());
    }
    let mut out = Vec::with_capacity(body.len());
    out.extend_from_slice(body.get(..=start)?);
    for (number, (from, to)) in items.kept.into_iter().enumerate() {
        if number > 0 {
            out.push(b',');
        }
        out.extend_from_slice(body.get(from..to)?);
    }
    out.extend_from_slice(body.get(end.checked_sub(1)?..)?);
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(body: &str) -> Option<String> {
        let may_use = |name: &str| !name.starts_with("secret");
        filtered(body.as_bytes(), may_use).map(|list| String::from_utf8(list).expect("UTF-8"))
    }

    #[test]
    fn models_that_are_denied_are_not_in_the_list_and_the_rest_stays_as_it_came() {
        for (list, wanted) in [
            (
                r#"{"data": [ {"id":"a"} , {"id":"b","n":1e9} ], "x":1}"#,
                r#"{"data": [ {"id":"a"} , {"id":"b","n":1e9} ], "x":1}"#,
            ),
            (
                r#"{"object":"list","data":[{"id":"secret-1"},{"id":"a","x":[{}]},{"id":"secret-2"}]}"#,
                r#"{"object":"list","data":[{"id":"a","x":[{}]}]}"#,
            ),
            (
                r#"{"data":[{"x":{"id":"a"},"id":"secret"}, {"id":"a"}, {"id":"b"}],"has_more":false}"#,
                r#"{"data":[{"id":"a"},{"id":"b"}],"has_more":false}"#,
            ),
            (r#"{"data":[{"id":"\u0073ecret"}]}"#, r#"{"data":[]}"#),
            (r#"{"data":[{"name":"secret"},7,{"id":7},{"id":"a"}]}"#, r#"{"data":[{"id":"a"}]}"#),
            (r#"{"data":[]}"#, r#"{"data":[]}"#),
        ] {
            assert_eq!(shown(list).as_deref(), Some(wanted), "{list}");
        }
    }

    #[test]
    fn a_list_that_can_be_read_in_two_ways_or_not_at_all_is_not_shown() {
        for list in [
            r#"{"data":[{"id":"a","id":"secret"}]}"#,
            r#"{"data":[{"id":"a","ID":"secret"}]}"#,
            r#"{"data":[],"data":[{"id":"secret"}]}"#,
            r#"{"models":[{"id":"secret"}]}"#,
            r#"[{"id":"secret"}]"#,
            r#"{"data":{"id":"secret"}}"#,
            r#"{"data":[{"id":"a"}"#,
            "",
            "<html>",
        ] {
            assert_eq!(shown(list), None, "{list}");
        }
    }
}
