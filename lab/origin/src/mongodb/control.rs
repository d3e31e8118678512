//! Commands by which tests control the origin: `weirOrigin`, `configureFailPoint` and `replSetStepDown`.
//!
//! `{weirOrigin: 1}` shows the counts. `{weirOrigin: 1, face: {kind: "member", set: "rs", hosts: ["a:1", "b:2"], me: "a:1", primary: "b:2",
//! tags: {dc: "east"}, election: 2}}` sets the face first; `kind` is `standalone`, `mongos`, `loadBalancer` or `member`.

use std::sync::atomic::Ordering;

use weir_mongodb_codec::bson::{Document, Kind, Value, Writer};

use super::dispatch::{Context, Fate};
use super::face::{Face, Member};
use super::failure::{Failure, code};
use super::state::Core;

/// Members of a set, as many as MongoDB permits.
const HOSTS_MAX: usize = 50;

/// `weirOrigin`.
pub(super) fn weir_origin(at: &mut Context<'_>, body: &mut Writer<'_>) -> Result<Fate, Failure> {
    if let Some(face) = at.request.document(b"face")? {
        at.core.state.set_face(read_face(face)?);
    }
    write_counts(at.core, body);
    Ok(Fate::Done)
}

/// Counts of the origin. Requests are those of this worker.
pub(super) fn write_counts(core: &Core, body: &mut Writer<'_>) {
    let (state, stats) = (&core.state, &core.stats);
    body.string("face", state.face().word());
    body.int64("requests", stats.requests.load(Ordering::Relaxed) as i64);
    body.int64("connections", stats.connections.load(Ordering::Relaxed) as i64);
    body.int64("accepted", stats.accepted.load(Ordering::Relaxed) as i64);
    body.int64("inserted", state.inserted.load(Ordering::Relaxed) as i64);
    let (open, opened, killed) = {
        let cursors = state.cursors();
        (cursors.len() as i64, cursors.opened as i64, cursors.killed as i64)
    };
    body.document("cursors", |cursors| {
        cursors.int64("open", open);
        cursors.int64("opened", opened);
        cursors.int64("killed", killed);
    });
    let transactions = state.transactions();
    let counts = [
        ("open", transactions.open() as u64),
        ("started", transactions.started),
        ("committed", transactions.committed),
        ("aborted", transactions.aborted),
    ];
    drop(transactions);
    body.document("commands", |body| {
        state.counts.all().for_each(|(name, count)| body.int64(name, count as i64));
    });
    body.int64("compressedRequests", state.counts.compressed.load(Ordering::Relaxed) as i64);
    body.document("transactions", |body| {
        counts.iter().for_each(|(name, count)| body.int64(name, *count as i64));
    });
}

/// `configureFailPoint`.
pub(super) fn configure_fail_point(at: &mut Context<'_>, body: &mut Writer<'_>) -> Result<Fate, Failure> {
    let mut points = at.core.state.fail_points();
    let count = points.configure(at.request)?;
    at.core.state.has_fail_point.store(points.is_set(), Ordering::Release);
    body.int64("count", count);
    Ok(Fate::Done)
}

/// `replSetStepDown`: the primary becomes a secondary of a set without a primary.
pub(super) fn step_down(at: &mut Context<'_>, _body: &mut Writer<'_>) -> Result<Fate, Failure> {
    match at.core.state.face() {
        Face::Member(member) if Face::Member(member.clone()).is_writable() => {
            at.core.state.set_face(Face::Member(Member { primary: None, ..member }));
            Ok(Fate::Done)
        }
        Face::Member(_) => Err(Failure::new(code::NOT_WRITABLE_PRIMARY, "not primary so can't step down")),
        _ => Err(Failure::new(76, "not running with --replSet")),
    }
}

fn read_face(face: Document<'_>) -> Result<Face, Failure> {
    let mut kind = &b""[..];
    let mut member = Member::default();
    for element in face.elements() {
        let element = element?;
        let value = element.value;
        match element.name {
            b"kind" => kind = value.as_string().unwrap_or_default(),
            b"set" => member.set = text(value)?,
            b"hosts" => member.hosts = texts(value)?,
            b"me" => member.me = text(value)?,
            b"primary" if value.kind == Kind::Null => member.primary = None,
            b"primary" => member.primary = Some(text(value)?),
            b"election" => member.election = value.as_integer().unwrap_or_default().unsigned_abs(),
            b"tags" => {
                for tag in value.as_document()?.into_iter().flat_map(Document::elements) {
                    let tag = tag?;
                    member.tags.push((String::from_utf8_lossy(tag.name).into_owned(), text(tag.value)?));
                }
            }
            name => return Err(wrong(&format!("a face has no {}", String::from_utf8_lossy(name)))),
        }
    }
    match kind {
        b"standalone" => Ok(Face::Standalone),
        b"mongos" => Ok(Face::Mongos),
        b"loadBalancer" => Ok(Face::LoadBalancer),
        b"member" if !member.set.is_empty() && member.hosts.contains(&member.me) => Ok(Face::Member(member)),
        b"member" => Err(wrong("a member needs set, hosts, and itself (me) among them")),
        _ => Err(wrong("kind is standalone, mongos, loadBalancer or member")),
    }
}

fn text(value: Value<'_>) -> Result<String, Failure> {
    let text = value.as_string().map(|text| String::from_utf8_lossy(text).into_owned());
    text.ok_or_else(|| wrong("a text is needed"))
}

fn texts(value: Value<'_>) -> Result<Vec<String>, Failure> {
    let array = value.as_document()?.filter(|_| value.kind == Kind::Array).ok_or_else(|| wrong("hosts is an array"))?;
    array.elements().take(HOSTS_MAX).map(|element| text(element?.value)).collect()
}

fn wrong(text: &str) -> Failure {
    Failure::new(code::BAD_VALUE, format!("weirOrigin: {text}"))
}
