//! `weir routes`: the routes of HTTP listeners in the order in which they are tried, and which of them takes a request.

use std::path::PathBuf;

use clap::Args;
use weir_config::{Listener, ListenerProtocol, Snapshot};
use weir_http::explain::{self, RouteQuery};

/// Show the routes of a configuration file in the order in which they are tried, and the route that matches a request.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  weir routes weir.toml\n  weir routes weir.toml http://shop.example/cart?x=1\n  \
                        weir routes weir.toml http://shop.example/cart -X POST -H 'x-beta: yes'")]
pub struct RoutesArgs {
    /// The configuration file.
    file: PathBuf,

    /// URL of a request: show which route matches it, and why other routes do not.
    url: Option<String>,

    /// Show only this listener.
    #[arg(long, short)]
    listener: Option<String>,

    /// Method of the request.
    #[arg(long, short = 'X', default_value = "GET", requires = "url")]
    method: String,

    /// Header field of the request, as `name: value`; may be repeated.
    #[arg(long, short = 'H', requires = "url")]
    header: Vec<String>,
}

pub fn run(args: &RoutesArgs) -> Result<(), String> {
    let snapshot = weir_config::check_offline(&args.file, &|name| std::env::var(name).ok()).map_err(|diagnostics| {
        eprintln!("{diagnostics}");
        format!("{}: {}", args.file.display(), crate::check::mistakes(&diagnostics))
    })?;
    print!("{}", report(&snapshot, args)?);
    Ok(())
}

/// The text to print.
fn report(snapshot: &Snapshot, args: &RoutesArgs) -> Result<String, String> {
    let is_wanted = |listener: &&Listener| args.listener.as_ref().is_none_or(|name| **name == *listener.settings.name);
    let mut text = String::new();
    let mut found = false;
    for listener in snapshot.listeners.iter().filter(is_wanted) {
        let ListenerProtocol::Http(http) = &listener.protocol else { continue };
        found = true;
        text += &format!("listener {}, otherwise to upstream {}\n", listener.settings.name, listener.upstream);
        text += &match &args.url {
            None => explain::table(http),
            Some(url) => {
                explain::explain(http, &parse_request(url, args)?).unwrap_or_else(|refused| format!("{refused}\n"))
            }
        };
        text.push('\n');
    }
    match (found, &args.listener) {
        (true, _) => {}
        (false, Some(name)) => return Err(format!("there is no HTTP listener called \"{name}\"")),
        (false, None) => return Err("the file has no HTTP listener".to_owned()),
    }
    for route in &snapshot.protocols.http {
        let words = match (route.is_online, route.mistakes.is_empty(), route.listeners.is_empty()) {
            (_, false, _) => format!("invalid, its requests get 503: {}", route.mistakes.join("; ")),
            (false, true, _) => "offline".to_owned(),
            (true, true, true) => "no listener has it".to_owned(),
            (true, true, false) => continue,
        };
        text += &format!("route {}: {words}\n", route.name);
    }
    Ok(text)
}

fn parse_request<'a>(url: &'a str, args: &'a RoutesArgs) -> Result<RouteQuery<'a>, String> {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let at = rest.find(['/', '?']).unwrap_or(rest.len());
    let (host, target) = rest.split_at(at);
    if target.starts_with('?') {
        return Err(format!("{url} has no path: write {host}/{target}"));
    }
    let field = |line: &'a String| {
        let (name, value) = line.split_once(':').ok_or_else(|| format!("\"{line}\" is no field: write name: value"))?;
        Ok((name.trim(), value.trim()))
    };
    let fields = args.header.iter().map(field).collect::<Result<_, String>>()?;
    Ok(RouteQuery { method: &args.method, host, target: if target.is_empty() { "/" } else { target }, fields })
}
