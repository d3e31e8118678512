//! The API of SDKs that evaluate flags themselves: `/api/client`.

use std::{borrow::Cow, sync::Arc};

use weir_flags_codec::{etag, query};
use weir_flags_session::Projects;
use weir_http::{
    compression::{Coding, accepted},
    filter::{HandlerRequest, WholeResponse},
};

use crate::{
    access::{Access, Denial, Sight},
    edge::Edge,
    reply,
};

/// The part of the flags that a query selects.
#[derive(Debug, Default)]
pub(crate) struct Selection<'a> {
    /// The first `namePrefix`.
    pub(crate) prefix: Option<Cow<'a, str>>,
    projects: Vec<Cow<'a, str>>,
    /// A parameter that Unleash has and this gateway does not.
    has_tags: bool,
}

impl<'a> Selection<'a> {
    /// `None`: the query is no UTF-8.
    pub(crate) fn of(query: &'a str) -> Option<Self> {
        let mut selection = Self::default();
        for pair in query::pairs(query) {
            let (name, value) = pair.ok()?;
            match &*name {
                "namePrefix" if selection.prefix.is_none() => selection.prefix = Some(value),
                "project" | "project[]" => selection.projects.push(value),
                "tag" | "tag[]" => selection.has_tags = true,
                _ => {}
            }
        }
        Some(selection)
    }

    /// The projects of a token, restricted to those of the query. A query that names only projects which the token does not see gets no
    /// flags, as at unleash-server. `None`: all of the token.
    fn restricted(&self, own: &Projects) -> Option<Projects> {
        if self.projects.is_empty() {
            return None;
        }
        let restricted = own.restricted_to(&Projects::new(&self.projects));
        Some(restricted.unwrap_or(Projects::Some(Box::default()))).filter(|restricted| restricted != own)
    }
}

/// The response to a query that is no UTF-8.
pub(crate) fn bad_query() -> WholeResponse {
    reply::error(400, "the query is no UTF-8")
}

/// `GET /api/client/features`
pub(crate) async fn features(
    edge: &Arc<Edge>,
    access: &Access,
    request: &HandlerRequest,
    query: &str,
) -> Result<WholeResponse, Denial> {
    let Sight { environment, scope } = access.sight()?;
    let Some(selection) = Selection::of(query) else { return Ok(bad_query()) };
    if selection.has_tags {
        edge.counts.note_tag();
    }
    let prefix = selection.prefix.as_deref().unwrap_or_default();
    let document = match selection.restricted(&scope.projects) {
        None if prefix.is_empty() => environment.own_document(&scope).await,
        None => environment.selected_document(&scope, &scope.projects, prefix).await,
        Some(restricted) => environment.selected_document(&scope, &restricted, prefix).await,
    };
    let document = document.ok_or(Denial::NotYet)?;
    if reply::has(&request.head.fields, document.tag) {
        return Ok(reply::not_modified(&document.tag_text));
    }
    let accepted = accepted(Coding::ALL, &request.head.fields);
    let (bytes, coding) = environment.in_coding(&scope, &document, accepted);
    Ok(reply::tagged(bytes, &document.tag_text, coding))
}

/// `GET /api/client/features/{name}`, which is exact.
pub(crate) fn feature(access: &Access, request: &HandlerRequest, name: &str) -> Result<WholeResponse, Denial> {
    let sight = access.sight()?;
    let Some(text) = sight.environment.snapshot.feature(name, &sight.scope.scope) else { return Ok(reply::empty(404)) };
    let tag = etag::EntityTag::Hash(xxhash_rust::xxh64::xxh64(text.as_bytes(), 0));
    if reply::has(&request.head.fields, tag) {
        return Ok(reply::not_modified(&tag.to_string()));
    }
    Ok(reply::tagged(text.as_bytes().to_vec().into(), &tag.to_string(), None))
}

/// `GET /api/client/delta`
pub(crate) async fn delta(access: &Access, request: &HandlerRequest, query: &str) -> Result<WholeResponse, Denial> {
    let Sight { environment, scope } = access.sight()?;
    let Some(selection) = Selection::of(query) else { return Ok(bad_query()) };
    let prefix = selection.prefix.as_deref().unwrap_or_default();
    let client = reply::field(&request.head.fields, "if-none-match").and_then(etag::revision).filter(|own| *own > 0);
    let tag = environment.snapshot.delta_tag().to_string();
    Ok(match environment.delta(&scope, prefix, client).await.ok_or(Denial::NotYet)? {
        Some(body) => reply::tagged(body, &tag, None),
        None => reply::not_modified(&tag),
    })
}
