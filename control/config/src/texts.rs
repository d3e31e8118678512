//! The texts that keys have: names, words, addresses, choices; and lists of values.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{Value as Json, json};
use weir_base::Net;
use weir_base::nearest;
use weir_engine::settings::{Address, AddressError};
use weir_route::limits::REGEX_BYTES_MAX;
use weir_upstream::placement::HashTag;

use crate::document::{At, Node};
use crate::reader::Reader;
use crate::snapshot::LogTarget;
use crate::value::{Shape, Value, quoted};

/// Entries in a list. Default 1,024.
const LIST_ENTRIES_MAX: usize = 1_024;

/// Bytes of a name: it becomes a label of every metric of its listener or upstream.
const NAME_BYTES_MAX: usize = 64;

/// Bytes of a word: a user, a host, a protocol.
const WORD_BYTES_MAX: usize = 255;

/// Reads a string; reports anything else.
pub(crate) fn string<'n>(node: &'n Node<'_>, shape: &Shape, reader: &mut Reader<'_>) -> Option<&'n str> {
    let text = node.text();
    if text.is_none() {
        reader.wrong_kind(node, shape);
    }
    text
}

/// Declares a text type: its shape, and a function from text to value or to the remedy.
macro_rules! text_value {
    ($name:ty, $what:literal, $example:literal, $parse:expr, $show:expr) => {
        impl Value for $name {
            fn shape() -> Shape {
                Shape::Text { what: $what, example: $example }
            }

            fn read(node: &Node<'_>, _: Option<&RangeInclusive<Self>>, reader: &mut Reader<'_>) -> Option<Self> {
                let text = string(node, &Self::shape(), reader)?;
                let parse: fn(&str) -> Result<Self, String> = $parse;
                match parse(text) {
                    Ok(value) => Some(value),
                    Err(help) => {
                        reader.wrong_value(node, format!("`{}` is not {}", node.path, $what), help);
                        None
                    }
                }
            }

            fn show(&self) -> Json {
                let show: fn(&Self) -> String = $show;
                json!(show(self))
            }
        }
    };
}

/// The name of a listener or an upstream: a metric label and a part of admin paths.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Name(pub(crate) Arc<str>);

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

text_value!(
    Name,
    "a name",
    "cache",
    |text| {
        let fits = (1..=NAME_BYTES_MAX).contains(&text.len());
        let plain = text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'));
        match fits && plain {
            true => Ok(Self(text.into())),
            false => Err(format!("use 1 to {NAME_BYTES_MAX} letters, digits, `-`, `_` or `.`")),
        }
    },
    |name| name.0.to_string()
);

/// A word of printable ASCII without spaces: what protocols allow in user, client and protocol names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Word(pub(crate) String);

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

text_value!(
    Word,
    "a word",
    "weir",
    |text| {
        let fits = (1..=WORD_BYTES_MAX).contains(&text.len());
        match fits && text.bytes().all(|b| b.is_ascii_graphic()) {
            true => Ok(Self(text.to_owned())),
            false => Err(format!("use 1 to {WORD_BYTES_MAX} printable ASCII characters without spaces")),
        }
    },
    |word| word.0.clone()
);

/// A word that may be long: a path, a regular expression, what replaces its matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LongWord(pub(crate) String);

text_value!(
    LongWord,
    "a word",
    "/blog",
    |text| {
        let fits = (1..=REGEX_BYTES_MAX).contains(&text.len());
        match fits && text.bytes().all(|b| b.is_ascii_graphic()) {
            true => Ok(Self(text.to_owned())),
            false => Err(format!("use 1 to {REGEX_BYTES_MAX} printable ASCII characters without spaces")),
        }
    },
    |word| word.0.clone()
);

/// Longest text.
const TEXT_BYTES_MAX: usize = 16 * 1024;

/// Any text: a header value, the body of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Text(pub(crate) String);

text_value!(
    Text,
    "a text",
    "hello",
    |text| match text.len() <= TEXT_BYTES_MAX {
        true => Ok(Self(text.to_owned())),
        false => Err(format!("use at most {TEXT_BYTES_MAX} bytes")),
    },
    |text| text.0.clone()
);

/// An amount of money, in millionths of its currency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Money(pub(crate) u64);

text_value!(
    Money,
    "an amount of money",
    "2.50",
    |text| {
        let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
        let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        let micros = (is_number(whole) && is_number(fraction) && fraction.len() <= 6)
            .then(|| format!("{whole}{fraction:0<6}").parse().ok())
            .flatten();
        micros.map(Self).ok_or_else(|| "write a number with up to six decimals in quotes, such as \"2.50\"".to_owned())
    },
    |money| {
        let text = format!("{}.{:06}", money.0 / 1_000_000, money.0 % 1_000_000);
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    }
);

/// A time in UTC, in seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UtcTime(pub(crate) u64);

text_value!(
    UtcTime,
    "a time in UTC",
    "2027-01-31T00:00:00Z",
    |text| {
        let help = "write it as in \"2027-01-31T00:00:00Z\"";
        weir_base::time::from_rfc3339(text).map(Self).ok_or_else(|| help.to_owned())
    },
    |time| weir_base::time::rfc3339(time.0)
);

/// The two characters around a hash tag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tag(pub(crate) HashTag);

text_value!(
    Tag,
    "a pair of characters",
    "{}",
    |text| match text.as_bytes() {
        &[open, close] if text.is_ascii() => Ok(Self(HashTag { open, close })),
        _ => Err("write the opening and the closing character, for example \"{}\"".to_owned()),
    },
    |tag| [tag.0.open, tag.0.close].map(char::from).iter().collect()
);

/// Where to listen: no host name, since what it resolves to may change between two starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bind(pub(crate) Address);

text_value!(
    Bind,
    "an address to listen on",
    "127.0.0.1:6380",
    |text| {
        match text.parse::<Address>() {
            Ok(Address::Host { name, port }) if &*name == "localhost" => {
                Err(format!("write the IP address: 127.0.0.1:{port} or [::1]:{port}"))
            }
            Ok(Address::Host { .. }) => Err("a listener binds an IP address or unix:/path, not a host name".to_owned()),
            Ok(address) => Ok(Self(address)),
            Err(error) => Err(address_help(text, error)),
        }
    },
    |bind| bind.0.to_string()
);

/// Where the admin server listens: TCP only, browsers and probes reach nothing else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AdminBind(pub(crate) SocketAddr);

text_value!(
    AdminBind,
    "an IP address and port",
    "127.0.0.1:9900",
    |text| {
        match text.parse::<Address>() {
            Ok(Address::Socket(address)) => Ok(Self(address)),
            Ok(Address::Host { port, .. }) => Err(format!("write an IP address, for example 127.0.0.1:{port}")),
            Ok(Address::Unix(_)) => Err("the admin server has no Unix socket; write 127.0.0.1:9900".to_owned()),
            Err(error) => Err(address_help(text, error)),
        }
    },
    |bind| bind.0.to_string()
);

/// Where to connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint(pub(crate) Address);

text_value!(
    Endpoint,
    "an address to connect to",
    "127.0.0.1:6379",
    |text| {
        match text.parse::<Address>() {
            Ok(address) if address.port() == Some(0) => Err("port 0 cannot be connected to".to_owned()),
            Ok(Address::Socket(address)) if address.ip().is_unspecified() => {
                Err("0.0.0.0 and [::] mean every interface; name the host to connect to".to_owned())
            }
            Ok(address) => Ok(Self(address)),
            Err(error) => Err(address_help(text, error)),
        }
    },
    |endpoint| endpoint.0.to_string()
);

/// The address error, with the mended text where it is obvious.
fn address_help(text: &str, error: AddressError) -> String {
    match error {
        AddressError::BarePath if text.starts_with('/') => format!("{error}; here \"unix:{text}\""),
        AddressError::NoHost => match text.rsplit_once(':') {
            Some((_, port)) => format!("{error}; here \"0.0.0.0:{port}\""),
            None => error.to_string(),
        },
        error => error.to_string(),
    }
}

text_value!(
    Net,
    "a network",
    "10.0.0.0/8",
    |text| {
        let net = text.parse::<Self>().map_err(|error| error.to_string())?;
        match net.parts() {
            // Addresses of IPv4 clients are looked at as such, whatever socket they came through.
            (IpAddr::V6(address), prefix @ 96..) if address.to_ipv4_mapped().is_some() => {
                Err(format!("write it as IPv4, or it would match nothing: {}/{}", address.to_canonical(), prefix - 96))
            }
            _ => Ok(net),
        }
    },
    |net| net.to_string()
);

/// A type of which each value is a word.
pub(crate) trait Choice: Copy + PartialEq + 'static {
    /// The words and their values, the usual one first.
    const WORDS: &'static [(&'static str, Self)];
}

impl<T: Choice> Value for T {
    fn shape() -> Shape {
        Shape::Choice(T::WORDS.iter().map(|(word, _)| *word).collect())
    }

    fn read(node: &Node<'_>, _: Option<&RangeInclusive<Self>>, reader: &mut Reader<'_>) -> Option<Self> {
        let text = string(node, &T::shape(), reader)?;
        let found = T::WORDS.iter().find(|(word, _)| *word == text);
        if found.is_none() {
            let words: Vec<&str> = T::WORDS.iter().map(|(word, _)| *word).collect();
            unknown_word(node, text, &words, reader);
        }
        found.map(|(_, value)| *value)
    }

    fn show(&self) -> Json {
        json!(T::WORDS.iter().find(|(_, value)| value == self).map(|(word, _)| *word))
    }
}

/// Reports a word that is none of `words`.
pub(crate) fn unknown_word(node: &Node<'_>, text: &str, words: &[&str], reader: &mut Reader<'_>) {
    let message = format!("`{}` has no such value", node.path);
    let help = match nearest(text, words.iter().copied()) {
        Some(meant) => format!("did you mean \"{meant}\"? values: {}", quoted(words)),
        None => format!("values: {}", quoted(words)),
    };
    reader.wrong_value(node, message, help);
}

text_value!(
    LogTarget,
    "a log target",
    "stdout",
    |text| match text {
        "off" => Ok(Self::Off),
        "stdout" => Ok(Self::Stdout),
        "stderr" => Ok(Self::Stderr),
        text => match text.strip_prefix("file:") {
            Some(path) if path.starts_with('/') => Ok(Self::File(PathBuf::from(path))),
            _ => Err("write off, stdout, stderr or file:/absolute/path".to_owned()),
        },
    },
    |target| match target {
        LogTarget::Off => "off".to_owned(),
        LogTarget::Stdout => "stdout".to_owned(),
        LogTarget::Stderr => "stderr".to_owned(),
        LogTarget::File(path) => format!("file:{}", path.display()),
    }
);

impl<T: Value> Value for Vec<At<T>> {
    fn shape() -> Shape {
        Shape::List(Box::new(T::shape()))
    }

    fn read(node: &Node<'_>, _: Option<&RangeInclusive<Self>>, reader: &mut Reader<'_>) -> Option<Self> {
        let Some(items) = node.value.as_array() else {
            reader.wrong_kind(node, &Self::shape());
            return None;
        };
        if items.len() > LIST_ENTRIES_MAX {
            let message = format!("`{}` has {} entries", node.path, items.len());
            reader.wrong_value(node, message, format!("at most {LIST_ENTRIES_MAX} are allowed"));
            return None;
        }
        let mut list = Vec::with_capacity(items.len());
        for item in items.iter() {
            let entry = Node { value: item.get_ref(), span: item.span(), path: node.path };
            // An entry that does not do is reported, and so are those after it; the list as a whole is then unknown.
            list.push(T::read(&entry, None, reader).map(|value| At { value, span: item.span(), is_given: true }));
        }
        list.into_iter().collect()
    }

    fn show(&self) -> Json {
        self.iter().map(|entry| entry.value.show()).collect()
    }
}
