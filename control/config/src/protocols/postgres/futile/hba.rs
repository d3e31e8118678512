//! Rules about clients that fit none.

use weir_engine::settings::Address;
use weir_listener::settings::ProxyProtocol;
use weir_postgres::settings::{Method, Name, Rule, Transport};

use super::super::rules::HbaSection;
use crate::checks::warn_at;
use crate::protocols::ListenerContext;
use crate::reader::Reader;

/// Warns of rules that no client reaches. `rules` has one for each table; `None`: it is wrong, which was reported.
pub(in super::super) fn check(rules: &[Option<Rule>], of: &ListenerContext<'_>, reader: &mut Reader<'_>) {
    let tables = &of.section.own.postgres.postgres.hba;
    for (index, (rule, table)) in rules.iter().zip(tables).enumerate() {
        let Some(rule) = rule else { continue };
        let path = format!("{}.postgres.hba[{index}]", of.path);
        check_transport(rule, table, &path, of, reader);
        let earlier = rules[..index].iter().position(|earlier| earlier.as_ref().is_some_and(|one| covers(one, rule)));
        if let (Some(earlier), Some(method)) = (earlier, &table.method) {
            let what = format!("is never reached: hba[{earlier}] fits every client that this rule fits");
            warn_at(method, &path, "method", &what, "move this rule before that rule, or remove it", reader);
        }
    }
    let (Some(Some(last)), Some(table)) = (rules.last(), tables.last()) else { return };
    let lets_in = |rule: &&Rule| rule.method != Method::Reject;
    let believes_all = rules.iter().flatten().filter(lets_in).all(|rule| rule.method == Method::Trust);
    if believes_all && last.method == Method::Trust && super::has_unproven_users(of) {
        let at = table.method.as_ref().map(|method| (method, format!("{}.postgres.hba[{}]", of.path, rules.len() - 1)));
        if let Some((method, path)) = at {
            let what = "accepts every client: no client has to prove the password of its [[listener.user]]";
            warn_at(method, &path, "method", what, "write method = \"scram-sha-256\", or remove the users", reader);
        }
    }
}

/// No client comes in the way that the rule is for.
fn check_transport(rule: &Rule, table: &HbaSection, path: &str, of: &ListenerContext<'_>, reader: &mut Reader<'_>) {
    let Some(at) = &table.r#type else { return };
    // PROXY headers may name a client that has come by TCP.
    let Some(bind) = of.section.bind.as_ref().filter(|_| of.section.proxy_protocol.value == ProxyProtocol::Off) else {
        return;
    };
    let is_socket = matches!(bind.value.0, Address::Unix(_));
    let what = match rule.transport {
        Transport::Local if !is_socket => "fits no client: the listener is not bound to a Unix socket",
        Transport::Host | Transport::HostTls | Transport::HostPlain if is_socket => {
            "fits no client: all clients use the Unix socket"
        }
        Transport::HostTls if of.section.tls.is_none() => "fits no client: the listener has no TLS",
        _ => return,
    };
    let help = match rule.transport {
        Transport::HostTls if !is_socket => "add [listener.tls], or remove the rule",
        _ => "write another type, or remove the rule",
    };
    warn_at(at, path, "type", what, help, reader);
}

/// Whether `earlier` fits every client that `later` fits.
fn covers(earlier: &Rule, later: &Rule) -> bool {
    let transport = match earlier.transport {
        Transport::Any => true,
        Transport::Host => !matches!(later.transport, Transport::Any | Transport::Local),
        same => same == later.transport,
    };
    let is_physical = later.databases.contains(&Name::Replication);
    let networks = earlier.addresses.is_empty()
        || !later.addresses.is_empty()
            && later.addresses.iter().all(|net| {
                let (address, prefix) = net.parts();
                earlier.addresses.iter().any(|wide| wide.contains(address) && wide.parts().1 <= prefix)
            });
    transport
        && networks
        && has_all(&earlier.users, &later.users)
        && has_all(&earlier.databases, &later.databases)
        && (!is_physical || earlier.databases.is_empty() || earlier.databases.contains(&Name::Replication))
}

fn has_all(earlier: &[Name], later: &[Name]) -> bool {
    let is_in = |name: &Name| earlier.contains(name);
    earlier.is_empty() || earlier.contains(&Name::All) || (!later.is_empty() && later.iter().all(is_in))
}
