//! Commands about the connection.

use weir_resp::Version;

use crate::redis::{
    dispatch::Context,
    errors::{
        self, CLIENT_NAME, DB_RANGE, HELLO_NO_AUTH, NO_PASSWORD, NO_PROTO, PROTO_NOT_INTEGER, Refusal, SYNTAX,
        WRONG_PASSWORD,
    },
    number,
    reply::Reply,
    store::DATABASES,
};

use super::{integer, server::VERSION};

pub fn ping(cx: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Refusal> {
    match args {
        _ if args.len() > 2 => return Err(errors::arity("ping")),
        _ if cx.session.is_subscriber() => {
            reply.array(2);
            reply.bulk(b"pong");
            reply.bulk(args.get(1).copied().unwrap_or_default());
        }
        [_, text] => reply.bulk(text),
        _ => reply.simple("PONG"),
    }
    Ok(())
}

pub fn echo(_: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Refusal> {
    reply.bulk(args[1]);
    Ok(())
}

pub fn quit(cx: &mut Context<'_>, _: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Refusal> {
    cx.session.is_closing = true;
    reply.ok();
    Ok(())
}

/// As a new connection, except the id and the library's name; needs a new `AUTH`.
pub fn reset(cx: &mut Context<'_>, _: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Refusal> {
    cx.session.leave(cx.core);
    cx.session.database = 0;
    cx.session.name.clear();
    cx.session.limits = cx.core.request_limits();
    cx.session.version.set(Version::Resp2);
    reply.set_version(Version::Resp2);
    reply.simple("RESET");
    Ok(())
}

pub fn select(cx: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Refusal> {
    let index = usize::try_from(integer(args[1])?).ok().filter(|index| *index < DATABASES);
    cx.session.database = index.ok_or(DB_RANGE)?;
    reply.ok();
    Ok(())
}

pub fn auth(cx: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Refusal> {
    match args {
        [_, _] if cx.core.settings.password.is_none() => return Err(NO_PASSWORD),
        [_, password] => authenticate(cx, b"default", password)?,
        [_, user, password] => authenticate(cx, user, password)?,
        _ => return Err(SYNTAX),
    }
    reply.ok();
    Ok(())
}

/// The one user is `default`; without a password every one is right. A failure changes nothing.
fn authenticate(cx: &mut Context<'_>, user: &[u8], password: &[u8]) -> Result<(), Refusal> {
    let is_right = cx.core.settings.password.as_ref().is_none_or(|secret| secret.matches(password));
    if user != b"default" || !is_right {
        return Err(WRONG_PASSWORD);
    }
    cx.session.limits.authenticated = true;
    Ok(())
}

pub fn hello(cx: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Refusal> {
    let mut version = cx.session.version.get();
    if let Some(text) = args.get(1) {
        let number = number::parse(text).ok_or(PROTO_NOT_INTEGER)?;
        version = Version::from_number(number).ok_or(NO_PROTO)?;
    }
    let mut options = args.get(2..).unwrap_or_default();
    let mut name = None;
    while let [option, rest @ ..] = options {
        match (option.to_ascii_lowercase().as_slice(), rest) {
            (b"auth", [user, password, after @ ..]) => {
                authenticate(cx, user, password)?;
                options = after;
            }
            (b"setname", [wanted, after @ ..]) => {
                name = Some(client_name(wanted)?);
                options = after;
            }
            _ => return Err(errors::hello_option(option)),
        }
    }
    if !cx.session.is_authenticated() {
        return Err(HELLO_NO_AUTH);
    }
    if let Some(name) = name {
        cx.session.name = name;
    }
    cx.session.version.set(version);
    reply.set_version(version);
    reply.map(7);
    for (field, value) in [("server", "redis"), ("version", VERSION)] {
        reply.bulk(field.as_bytes());
        reply.bulk(value.as_bytes());
    }
    reply.bulk(b"proto");
    reply.integer(i64::from(version.number()));
    reply.bulk(b"id");
    reply.integer(cx.session.id as i64);
    for (field, value) in [("mode", "standalone"), ("role", "master")] {
        reply.bulk(field.as_bytes());
        reply.bulk(value.as_bytes());
    }
    reply.bulk(b"modules");
    reply.array(0);
    Ok(())
}

/// Longest client and library name that is kept; Redis has no limit of its own.
const NAME_BYTES_MAX: usize = 1_024;

fn client_name(name: &[u8]) -> Result<Vec<u8>, Refusal> {
    let is_printable = name.iter().all(|byte| (b'!'..=b'~').contains(byte));
    if is_printable && name.len() <= NAME_BYTES_MAX { Ok(name.to_vec()) } else { Err(CLIENT_NAME) }
}

pub fn client(cx: &mut Context<'_>, args: &[&[u8]], reply: &mut Reply<'_>) -> Result<(), Refusal> {
    let name = args[1].to_ascii_lowercase();
    match (name.as_slice(), args.len()) {
        (b"id", 2) => reply.integer(cx.session.id as i64),
        (b"getname", 2) => match cx.session.name.is_empty() {
            true => reply.null(),
            false => reply.bulk(&cx.session.name),
        },
        (b"setname", 3) => {
            cx.session.name = client_name(args[2])?;
            reply.ok();
        }
        (b"setinfo", 4) => {
            let value = client_name(args[3])?;
            match args[2].to_ascii_lowercase().as_slice() {
                b"lib-name" => cx.session.library_name = value,
                b"lib-ver" => cx.session.library_version = value,
                _ => return Err(errors::unrecognized_option(args[2])),
            }
            reply.ok();
        }
        (b"info", 2) => {
            let session = &*cx.session;
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            let line = format!(
                "id={} name={} db={} sub={} resp={} lib-name={} lib-ver={}\n",
                session.id,
                text(&session.name),
                session.database,
                session.channels.len(),
                session.version.get().number(),
                text(&session.library_name),
                text(&session.library_version),
            );
            reply.verbatim(line.as_bytes());
        }
        (b"id" | b"getname" | b"setname" | b"setinfo" | b"info", _) => {
            return Err(errors::arity(&format!("client|{}", String::from_utf8_lossy(&name))));
        }
        _ => return Err(errors::unknown_subcommand("CLIENT", args[1])),
    }
    Ok(())
}
