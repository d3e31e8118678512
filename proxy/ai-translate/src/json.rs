//! Values as the text that came. One level is looked at; all below passes unread, so that numbers, escapes and unknown
//! members keep their form.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use weir_json_codec::{Duplicates, JsonError, Node, Scanner, Sink, Value};

use crate::limits::{ITEMS_MAX, MEMBERS_MAX};
use crate::loss::Losses;
use crate::mistake::Mistake;

const WRONG_TYPE: &str = "the value has the wrong type";

/// No place is watched: the scan checks the grammar and the depth.
static ANY: Node<()> = Node::NEW;

/// The levels of a message that a value may have above it, at most: the input of a call has five.
const LEVELS_ABOVE: &str = "[[[[[[";

/// Takes nothing.
struct Ignore;

impl Sink<()> for Ignore {
    fn value(&mut self, _: Value<'_, ()>) {}
}

/// A check of a text that arrives in pieces.
#[derive(Clone, Debug)]
pub(crate) struct Check(Scanner<()>);

impl Check {
    pub(crate) fn new() -> Self {
        Self(Scanner::new(&ANY, Duplicates::Report))
    }

    /// Takes the next piece.
    pub(crate) fn push(&mut self, piece: &str) -> Result<(), JsonError> {
        self.0.push(piece.as_bytes(), &mut Ignore)
    }

    /// The outermost value has ended.
    pub(crate) fn is_whole(&self) -> bool {
        self.0.is_done()
    }

    /// No byte has come.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.offset() == 0
    }
}

/// A value of a text that was checked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Json<'a>(&'a str);

impl<'a> Json<'a> {
    /// Checks a whole text: its grammar, its depth, and that it is UTF-8.
    pub(crate) fn check(text: &'a [u8]) -> Result<Self, Mistake> {
        let mut scanner = Scanner::new(&ANY, Duplicates::Report);
        scanner.push(text, &mut Ignore)?;
        scanner.finish(&mut Ignore)?;
        let text = std::str::from_utf8(text).map_err(|_| Mistake::new("", "the text is not valid UTF-8"))?;
        Ok(Self(text.trim_ascii()))
    }

    /// The value may be put into a message without being too deep.
    pub(crate) fn has_room(self) -> bool {
        let mut check = Check::new();
        check.push(LEVELS_ABOVE).and_then(|()| check.push(self.0)).is_ok()
    }

    /// Its text.
    pub(crate) fn raw(self) -> &'a str {
        self.0
    }

    pub(crate) fn is_string(self) -> bool {
        self.0.starts_with('"')
    }

    pub(crate) fn is_array(self) -> bool {
        self.0.starts_with('[')
    }

    pub(crate) fn is_object(self) -> bool {
        self.0.starts_with('{')
    }

    /// A string without a character.
    pub(crate) fn is_empty_string(self) -> bool {
        self.0 == "\"\""
    }

    /// A string of white space alone.
    pub(crate) fn is_blank_string(self) -> bool {
        let Some(mut rest) = self.0.strip_prefix('"').and_then(|text| text.strip_suffix('"')) else { return false };
        loop {
            rest = rest.trim_start();
            if rest.is_empty() {
                return true;
            }
            match ["\\n", "\\r", "\\t"].iter().find_map(|escape| rest.strip_prefix(escape)) {
                Some(behind) => rest = behind,
                None => return false,
            }
        }
    }

    /// `null`, or an empty string, array or object.
    pub(crate) fn is_empty(self) -> bool {
        match self.0.as_bytes() {
            b"null" | b"\"\"" => true,
            [b'{' | b'[', inner @ .., _] => inner.trim_ascii().is_empty(),
            _ => false,
        }
    }

    /// The same, false, or zero: for a member of which these are the default.
    pub(crate) fn is_neutral(self) -> bool {
        let is_zero = |text: &str| text.parse::<f64>().is_ok_and(|number| number == 0.0);
        match self.0.as_bytes() {
            b"false" => true,
            [b'-' | b'0'..=b'9', ..] => is_zero(self.0),
            _ => self.is_empty(),
        }
    }

    /// The text of a string as JSON, without its quotes.
    pub(crate) fn inner(self) -> &'a str {
        self.0.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or_default()
    }

    /// A string without its escapes.
    pub(crate) fn text(self) -> Option<Cow<'a, str>> {
        if !self.is_string() {
            return None;
        }
        serde_json::from_str::<Text<'a>>(self.0).ok().map(|text| text.0)
    }

    /// The items of an array.
    pub(crate) fn items(self, param: impl Into<Cow<'static, str>>) -> Result<Vec<Self>, Mistake> {
        if !self.is_array() {
            return Err(Mistake::new(param, WRONG_TYPE));
        }
        let items = serde_json::from_str::<Items<'a>>(self.0);
        items.map(|items| items.0).map_err(|_| Mistake::new(param, "the array has too many items"))
    }
}

/// An object whose members are taken one by one.
#[derive(Debug)]
pub(crate) struct Object<'a> {
    /// Its path, for mistakes and losses. Empty: it is the body.
    place: &'static str,
    members: Vec<(Cow<'a, str>, Json<'a>)>,
}

impl<'a> Object<'a> {
    /// Reads the members of `json`. A member that occurs twice is a mistake: readers disagree about the one that counts.
    pub(crate) fn read(json: Json<'a>, place: &'static str) -> Result<Self, Mistake> {
        if !json.is_object() {
            return Err(Mistake::new(place, "the value is no object"));
        }
        let members = serde_json::from_str::<Members<'a>>(json.0);
        let Members(members) = members.map_err(|_| Mistake::new(place, "the object has too many members"))?;
        let is_twice = |at: usize| members[..at].iter().any(|(name, _)| *name == members[at].0);
        if (1..members.len()).any(is_twice) {
            return Err(Mistake::new(place, "an object has a member twice"));
        }
        Ok(Self { place, members })
    }

    fn param(&self, name: &'static str) -> Cow<'static, str> {
        match self.place {
            "" => name.into(),
            place => format!("{place}.{name}").into(),
        }
    }

    /// A mistake of the member `name`.
    pub(crate) fn mistake(&self, name: &'static str, text: &'static str) -> Mistake {
        Mistake::new(self.param(name), text)
    }

    /// There is a member that is not `null`.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.members.iter().any(|(member, value)| member == name && value.raw() != "null")
    }

    /// Takes a member. One that is `null` is absent.
    pub(crate) fn take(&mut self, name: &str) -> Option<Json<'a>> {
        let at = self.members.iter().position(|(member, _)| member == name)?;
        let (_, value) = self.members.remove(at);
        (value.raw() != "null").then_some(value)
    }

    /// Takes a member that must be there.
    pub(crate) fn need(&mut self, name: &'static str) -> Result<Json<'a>, Mistake> {
        self.take(name).ok_or_else(|| self.mistake(name, "the member is missing"))
    }

    /// Takes a string as it came.
    pub(crate) fn string(&mut self, name: &'static str) -> Result<Option<Json<'a>>, Mistake> {
        match self.take(name) {
            Some(value) if !value.is_string() => Err(self.mistake(name, WRONG_TYPE)),
            value => Ok(value),
        }
    }

    /// Takes a string that must be there, as it came.
    pub(crate) fn need_string(&mut self, name: &'static str) -> Result<Json<'a>, Mistake> {
        self.string(name)?.ok_or_else(|| self.mistake(name, "the member is missing"))
    }

    /// Takes a string without its escapes.
    pub(crate) fn text(&mut self, name: &'static str) -> Result<Option<Cow<'a, str>>, Mistake> {
        Ok(self.string(name)?.and_then(Json::text))
    }

    /// Takes a string that must be there, without its escapes.
    pub(crate) fn need_text(&mut self, name: &'static str) -> Result<Cow<'a, str>, Mistake> {
        self.need_string(name)?.text().ok_or_else(|| self.mistake(name, WRONG_TYPE))
    }

    /// Takes a truth value; an absent one is false.
    pub(crate) fn flag(&mut self, name: &'static str) -> Result<bool, Mistake> {
        match self.take(name).map(Json::raw) {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(_) => Err(self.mistake(name, WRONG_TYPE)),
        }
    }

    /// Takes a number as it came.
    pub(crate) fn number(&mut self, name: &'static str) -> Result<Option<Json<'a>>, Mistake> {
        match self.take(name) {
            Some(value) if !value.raw().starts_with(|first: char| first == '-' || first.is_ascii_digit()) => {
                Err(self.mistake(name, WRONG_TYPE))
            }
            value => Ok(value),
        }
    }

    /// Takes an object that must be there, as it came.
    pub(crate) fn need_object_text(&mut self, name: &'static str) -> Result<Json<'a>, Mistake> {
        self.object_text(name)?.ok_or_else(|| self.mistake(name, "the member is missing"))
    }

    /// Takes an object as it came.
    pub(crate) fn object_text(&mut self, name: &'static str) -> Result<Option<Json<'a>>, Mistake> {
        match self.take(name) {
            Some(value) if !value.is_object() => Err(self.mistake(name, WRONG_TYPE)),
            value => Ok(value),
        }
    }

    /// Takes the items of an array; an absent one has none.
    pub(crate) fn items(&mut self, name: &'static str) -> Result<Vec<Json<'a>>, Mistake> {
        self.take(name).map_or(Ok(Vec::new()), |value| value.items(self.param(name)))
    }

    /// Takes an object, whose path is `place`.
    pub(crate) fn object(&mut self, name: &str, place: &'static str) -> Result<Option<Self>, Mistake> {
        self.take(name).map(|value| Self::read(value, place)).transpose()
    }

    /// Takes an object that must be there.
    pub(crate) fn need_object(&mut self, name: &'static str, place: &'static str) -> Result<Self, Mistake> {
        Self::read(self.need(name)?, place)
    }

    /// The members that were not taken are left out.
    pub(crate) fn rest(&self, losses: &mut Losses) {
        for (name, value) in &self.members {
            losses.add_value(self.place, name, *value);
        }
    }
}

/// A string, borrowed if it has no escapes.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

struct Members<'a>(Vec<(Cow<'a, str>, Json<'a>)>);

struct Items<'a>(Vec<Json<'a>>);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Collect).map(Self)
    }
}

impl<'de> Deserialize<'de> for Items<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(CollectItems).map(Self)
    }
}

/// Collects members up to [`MEMBERS_MAX`].
struct Collect;

impl<'de> Visitor<'de> for Collect {
    type Value = Vec<(Cow<'de, str>, Json<'de>)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of few members")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::new();
        while let Some((Text(name), value)) = map.next_entry::<Text<'de>, &'de RawValue>()? {
            if members.len() == MEMBERS_MAX {
                return Err(A::Error::custom("too many members"));
            }
            members.push((name, Json(value.get())));
        }
        Ok(members)
    }
}

/// Collects items up to [`ITEMS_MAX`].
struct CollectItems;

impl<'de> Visitor<'de> for CollectItems {
    type Value = Vec<Json<'de>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of few items")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let mut found = Vec::new();
        while let Some(value) = items.next_element::<&'de RawValue>()? {
            if found.len() == ITEMS_MAX {
                return Err(A::Error::custom("too many items"));
            }
            found.push(Json(value.get()));
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_taken_once_and_the_rest_is_lost() {
        let json = Json::check(br#" {"a":1e999,"b":null,"\u0063":"x\n","d":[],"e":0.0,"f":[0]} "#).expect("JSON");
        let mut object = Object::read(json, "").expect("an object");
        assert_eq!(object.number("a").expect("a number").map(Json::raw), Some("1e999"));
        assert!(object.take("a").is_none() && object.take("b").is_none());
        assert_eq!(object.text("c").expect("a string").as_deref(), Some("x\n"));
        let mut losses = Losses::default();
        object.rest(&mut losses);
        assert_eq!(losses.header_value(), "e, f");
    }

    #[test]
    fn hostile_texts_are_refused_and_no_recursion_reads_them() {
        let deep = [vec![b'['; 100_000], vec![b']'; 100_000]].concat();
        for text in [&deep[..], b"", b"{", b"\"\\ud800\"", b"\"\xff\"", b"nul", b"{} {}"] {
            assert!(Json::check(text).is_err());
        }
        let refused = |text: &str| Object::read(Json::check(text.as_bytes()).expect("JSON"), "").expect_err("refused");
        assert_eq!(refused(r#"{"a":1,"\u0061":2}"#).text, "an object has a member twice");
        assert_eq!(refused("[]").text, "the value is no object");
        let members: Vec<String> = (0..=MEMBERS_MAX).map(|at| format!("\"{at}\":0")).collect();
        assert_eq!(refused(&format!("{{{}}}", members.join(","))).text, "the object has too many members");
        let items = format!("[{}0]", "0,".repeat(ITEMS_MAX));
        let items = Json::check(items.as_bytes()).expect("JSON").items("x");
        assert_eq!(items.expect_err("refused").text, "the array has too many items");
    }
}
