//! `POST /edge/validate`: the rights of tokens, for edges behind this one.

use std::{net::IpAddr, sync::Arc, time::Duration};

use weir_base::time::turn;
use weir_flags_codec::tokens::{TokensToValidate, ValidatedToken, ValidatedTokens};
use weir_flags_session::{Standing, Token};
use weir_http::filter::WholeResponse;

use crate::{
    edge::{Edge, View, Watch, Watched},
    reply,
};

/// The rights of the tokens of a body. Those that are not known are validated first; without a verdict in time the whole request is to come
/// again, for an absent token counts as bad.
pub(crate) async fn validate(edge: &Arc<Edge>, body: &[u8], source: IpAddr, patience: Duration) -> WholeResponse {
    let tokens = match TokensToValidate::read(body) {
        Ok(TokensToValidate { tokens }) => tokens,
        Err(error) => return reply::error(400, &error.to_string()),
    };
    if tokens.len() > weir_flags_codec::limits::TOKENS_MAX {
        return reply::error(413, "too many tokens");
    }
    let (mut view, mut watch) = (edge.view(), Watch::new(edge.clone(), Watched::Verdicts));
    let mut place = None;
    let ends = turn::now().saturating_add(patience);
    let is_open = |view: &View, text: &str| {
        !view.is_offline && view.tokens.find(text, turn::now()) == Standing::Unknown && Token::parse(text).is_ok()
    };
    loop {
        let open: Vec<&String> = tokens.iter().filter(|text| is_open(&view, text)).collect();
        if open.is_empty() {
            return reply::json(200, document(&view, &tokens).to_json());
        }
        if place.is_none() {
            place = edge.validations.place(source);
        }
        if place.is_none() {
            return reply::later();
        }
        // The others come with a later request, if the source has no room for all.
        let waiting = open.iter().filter(|text| edge.want(text, source)).count();
        if waiting == 0 {
            return reply::later();
        }
        let left = ends.since(turn::now());
        match weir_engine::timeout(left, watch.changed(&view)).await {
            Ok(changed) if !left.is_zero() => view = changed,
            _ => return reply::later(),
        }
    }
}

fn document(view: &View, tokens: &[String]) -> ValidatedTokens {
    let validated = tokens.iter().filter_map(|text| match view.tokens.find(text, turn::now()) {
        // An edge looks for the text that it has sent.
        Standing::Valid(token) => Some(ValidatedToken { token: text.clone(), ..(&**token).into() }),
        Standing::Invalid | Standing::Unknown => None,
    });
    ValidatedTokens { tokens: validated.collect() }
}
