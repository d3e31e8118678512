//! The rights of a request: its token, and the flags that it may see.

use std::{
    net::IpAddr,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use weir_base::time::turn;
use weir_flags_session::{Api, Standing, Token};
use weir_http::filter::WholeResponse;
use weir_http_codec::Fields;

use crate::{
    edge::{Edge, View, Watch, Watched},
    environment::{Environment, ScopeView},
    limits::WAITING_REQUESTS_MAX,
    reply,
};

/// The rights of a request that is served.
#[derive(Debug)]
pub(crate) struct Access {
    /// The state that gave them.
    pub(crate) view: Arc<View>,
    pub(crate) token: Arc<Token>,
}

/// The flags of a request.
#[derive(Debug)]
pub(crate) struct Sight {
    pub(crate) environment: Arc<Environment>,
    pub(crate) scope: Arc<ScopeView>,
}

/// The reason why a request is not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Denial {
    /// Its token may not: SDKs give up for ever at this.
    Forbidden,
    /// It is not known yet, and the client is to come again.
    NotYet,
}

impl Denial {
    /// The response. Without a body: it must not say which part of the token is wrong.
    pub(crate) fn response(self) -> WholeResponse {
        match self {
            Self::Forbidden => reply::empty(403),
            Self::NotYet => reply::later(),
        }
    }
}

/// The text of the token of a request. A request has one such field.
pub(crate) fn token_of<'a>(fields: &'a Fields, header: &str) -> Option<&'a str> {
    let mut values = fields.iter().filter(|field| field.name.eq_ignore_ascii_case(header.as_bytes()));
    let first = values.next()?;
    if values.next().is_some() {
        return None;
    }
    std::str::from_utf8(first.value).ok().map(str::trim)
}

/// The wait of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wait {
    /// The address that the token counts for while it has no verdict.
    pub(crate) source: IpAddr,
    /// The response is made of flags, so it waits for the first ones too.
    pub(crate) needs_flags: bool,
    /// The longest time for both.
    pub(crate) patience: Duration,
}

/// The rights of a token. One that is not known is validated first, and the request waits.
pub(crate) async fn access(edge: &Arc<Edge>, text: &str, api: Api, wait: Wait) -> Result<Access, Denial> {
    let Wait { source, needs_flags, patience } = wait;
    let is_ready = |view: &View, decided: &Result<Arc<Token>, Denial>| {
        !needs_flags || decided.as_ref().map_or(true, |token| !edge.awaits_flags(view, token))
    };
    let mut view = edge.view();
    match judge(&view, text, api) {
        Judgement::Decided(decided) if is_ready(&view, &decided) => return decided.map(|token| Access { view, token }),
        Judgement::Decided(_) => {}
        Judgement::Unknown if view.is_offline => return Err(Denial::Forbidden),
        // A text that is no token is no question for the server.
        Judgement::Unknown if Token::parse(text).is_err() => return Err(Denial::Forbidden),
        Judgement::Unknown if !edge.want(text, source) => return Err(Denial::NotYet),
        Judgement::Unknown => {}
        Judgement::Uncovered => {}
    }
    let waiting = Waiting::new(edge);
    if patience.is_zero() || waiting.others >= WAITING_REQUESTS_MAX {
        return Err(Denial::NotYet);
    }
    let ends = turn::now().saturating_add(patience);
    let mut watch = Watch::new(edge.clone(), Watched::Verdicts);
    loop {
        let left = ends.since(turn::now());
        let Ok(changed) = weir_engine::timeout(left, watch.changed(&view)).await else { return Err(Denial::NotYet) };
        view = changed;
        match judge(&view, text, api) {
            Judgement::Decided(decided) if is_ready(&view, &decided) => {
                return decided.map(|token| Access { view, token });
            }
            Judgement::Unknown if !edge.want(text, source) => return Err(Denial::NotYet),
            Judgement::Unknown | Judgement::Uncovered | Judgement::Decided(_) => {}
        }
    }
}

/// Whether a request with this token is certain to get a 403.
pub(crate) fn is_denied(view: &View, text: &str, api: Api) -> bool {
    match judge(view, text, api) {
        Judgement::Decided(decided) => decided.is_err(),
        Judgement::Unknown => view.is_offline || Token::parse(text).is_err(),
        Judgement::Uncovered => false,
    }
}

enum Judgement {
    Decided(Result<Arc<Token>, Denial>),
    /// The server has not said whether it is good.
    Unknown,
    /// It is good, and the tokens that may cover it are still being validated.
    Uncovered,
}

fn judge(view: &View, text: &str, api: Api) -> Judgement {
    let token = match view.tokens.find(text, turn::now()) {
        Standing::Valid(token) => token,
        Standing::Invalid => return Judgement::Decided(Err(Denial::Forbidden)),
        Standing::Unknown => return Judgement::Unknown,
    };
    match (token.may_use(api), view.is_covered(token)) {
        (false, _) => Judgement::Decided(Err(Denial::Forbidden)),
        (true, true) => Judgement::Decided(Ok(token.clone())),
        (true, false) if view.awaits_sources => Judgement::Uncovered,
        (true, false) => Judgement::Decided(Err(Denial::Forbidden)),
    }
}

/// Whether a token that was good still is, for a stream.
pub(crate) fn is_still_good(view: &View, token: &Token) -> bool {
    let text = token.secret().expose_str().unwrap_or_default();
    match view.tokens.find(text, turn::now()) {
        Standing::Valid(now) => **now == *token && view.is_covered(now),
        // Its validation is under way again.
        Standing::Unknown => !view.is_offline,
        Standing::Invalid => false,
    }
}

impl Access {
    /// The flags that the token may see.
    pub(crate) fn sight(&self) -> Result<Sight, Denial> {
        let environment = self.view.environment(&self.token).ok_or(Denial::NotYet)?;
        Ok(Sight { scope: environment.scope(self.token.projects()), environment: environment.clone() })
    }
}

/// A request that waits.
struct Waiting<'a> {
    edge: &'a Edge,
    others: usize,
}

impl<'a> Waiting<'a> {
    fn new(edge: &'a Edge) -> Self {
        Self { edge, others: edge.waiting.fetch_add(1, Ordering::Relaxed) }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.edge.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}
