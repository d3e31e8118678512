//! Which clients CLIENT LIST and CLIENT KILL select: the options of Redis 7.0 (`clientCommand`), with those of Valkey 9
//! (`parseClientFiltersOrReply`) that have a meaning here, with their error messages.
//!
//! A client is `normal`, or `pubsub` while it has subscriptions. `master` and `replica` are no clients of a gateway, so they
//! match no client. LADDR, FLAGS and CAPA concern data that the gateway does not report, and are syntax errors.

use std::sync::atomic::Ordering::Relaxed;

use weir_analysis::redis::Args;
use weir_base::{connection::ConnectionEntry, time::Time};

use crate::{refusal, request::Request, request::parse_integer, state::State};

/// The conditions for a client.
#[derive(Debug, Default)]
pub(crate) struct ClientFilter {
    ids: Vec<u64>,
    kind: Option<Kind>,
    address: Option<Vec<u8>>,
    ip: Option<Vec<u8>>,
    user: Option<Vec<u8>>,
    name: Option<Vec<u8>>,
    library: Option<Vec<u8>>,
    library_version: Option<Vec<u8>>,
    db: Option<u64>,
    /// Seconds since it was accepted, at least.
    age: Option<u64>,
    /// Seconds since its last command, at least.
    idle: Option<u64>,
    /// It is not the one who asks.
    skips_own: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Normal,
    Pubsub,
    /// A server.
    Other,
}

/// Which command asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    List,
    Kill,
}

impl ClientFilter {
    /// Reads the options from argument 2 on.
    ///
    /// # Errors
    /// The error line.
    pub(crate) fn parse(request: &Request<'_>, purpose: Purpose, state: &State) -> Result<Self, Vec<u8>> {
        // CLIENT KILL of all means all others.
        let mut filter = Self { skips_own: purpose == Purpose::Kill, ..Self::default() };
        let (mut at, argc) = (2, request.argc());
        while at < argc {
            if at + 1 >= argc {
                return Err(refusal::SYNTAX.into());
            }
            let value = request.text(at + 1);
            let text = || Some(value.to_vec());
            at += 2;
            match request.text(at - 2).to_ascii_uppercase().as_slice() {
                b"ID" => {
                    filter.ids.push(id(value, purpose)?);
                    while at < argc && parse_integer(request.text(at)).is_some() {
                        filter.ids.push(id(request.text(at), purpose)?);
                        at += 1;
                    }
                    // In Redis's LIST all that follows has to be a number.
                    if purpose == Purpose::List && at < argc && !is_option(request.text(at)) {
                        return Err(b"ERR Invalid client ID".to_vec());
                    }
                }
                b"TYPE" => filter.kind = Some(kind(value)?),
                b"ADDR" => filter.address = text(),
                b"IP" => filter.ip = text(),
                b"USER" if purpose == Purpose::Kill && !state.knows_user(value) => {
                    return Err([b"ERR No such user '", value, b"'"].concat());
                }
                b"USER" => filter.user = text(),
                b"NAME" => filter.name = text(),
                b"LIB-NAME" => filter.library = text(),
                b"LIB-VER" => filter.library_version = text(),
                b"DB" => filter.db = Some(number(value, "DB", 0)?),
                b"MAXAGE" => filter.age = Some(number(value, "maxage", 1)?),
                b"IDLE" => filter.idle = Some(number(value, "idle", 1)?),
                b"SKIPME" if value.eq_ignore_ascii_case(b"yes") => filter.skips_own = true,
                b"SKIPME" if value.eq_ignore_ascii_case(b"no") => filter.skips_own = false,
                _ => return Err(refusal::SYNTAX.into()),
            }
        }
        Ok(filter)
    }

    /// Whether the client is meant; `own` is the number of the one who asks.
    pub(crate) fn matches(&self, entry: &ConnectionEntry, own: u64, now: Time) -> bool {
        let is = |wanted: &Option<Vec<u8>>, text: &str| wanted.as_ref().is_none_or(|wanted| wanted == text.as_bytes());
        let details = entry.details();
        let ip = || entry.peer.rsplit_once(':').map_or(&*entry.peer, |(ip, _)| ip);
        let kind = if entry.subscriptions.load(Relaxed) > 0 { Kind::Pubsub } else { Kind::Normal };
        let active = Time::from_nanos(entry.active_at.load(Relaxed));
        (self.ids.is_empty() || self.ids.contains(&entry.id))
            && self.kind.is_none_or(|wanted| wanted == kind)
            && is(&self.address, &entry.peer)
            && (self.ip.is_none() || is(&self.ip, ip()))
            && is(&self.user, &details.user)
            && is(&self.name, &details.name)
            && is(&self.library, &details.library)
            && is(&self.library_version, &details.library_version)
            && self.db.is_none_or(|db| Some(db) == details.db.map(u64::from))
            && self.age.is_none_or(|age| now.since(entry.accepted_at).as_secs() >= age)
            && self.idle.is_none_or(|idle| now.since(active).as_secs() >= idle)
            && !(self.skips_own && entry.id == own)
    }
}

fn is_option(word: &[u8]) -> bool {
    const OPTIONS: [&[u8]; 12] = [
        b"ID",
        b"TYPE",
        b"ADDR",
        b"IP",
        b"USER",
        b"NAME",
        b"LIB-NAME",
        b"LIB-VER",
        b"DB",
        b"MAXAGE",
        b"IDLE",
        b"SKIPME",
    ];
    OPTIONS.iter().any(|option| word.eq_ignore_ascii_case(option))
}

fn id(text: &[u8], purpose: Purpose) -> Result<u64, Vec<u8>> {
    let id = parse_integer(text).and_then(|id| u64::try_from(id).ok());
    match purpose {
        Purpose::List => id.ok_or(b"ERR Invalid client ID".to_vec()),
        Purpose::Kill => id.filter(|id| *id > 0).ok_or(b"ERR client-id should be greater than 0".to_vec()),
    }
}

fn kind(word: &[u8]) -> Result<Kind, Vec<u8>> {
    let is = |name: &str| word.eq_ignore_ascii_case(name.as_bytes());
    match () {
        () if is("normal") => Ok(Kind::Normal),
        () if is("pubsub") => Ok(Kind::Pubsub),
        () if is("master") || is("primary") || is("replica") || is("slave") => Ok(Kind::Other),
        () => Err([b"ERR Unknown client type '", word, b"'"].concat()),
    }
}

fn number(text: &[u8], what: &str, least: u64) -> Result<u64, Vec<u8>> {
    let number = parse_integer(text).ok_or(format!("ERR {what} is not an integer or out of range"))?;
    let number = u64::try_from(number).ok().filter(|number| *number >= least);
    number.ok_or_else(|| {
        format!("ERR {what} should be {}", if least == 0 { "0 or more" } else { "greater than 0" }).into()
    })
}
