//! One request: from its endpoint to its response.

use std::{fmt, pin::Pin, sync::Arc, time::Duration};

use weir_flags_session::Api;
use weir_http::filter::{Handler, HandlerRequest, HandlerResponse, WholeResponse};
use weir_http_codec::{Fields, Known, RequestHead};

use crate::{
    access::{Denial, Wait, access, is_denied, token_of},
    backstage, client_api,
    edge::Edge,
    frontend_api, metrics_api, ofrep, reply,
    settings::{FlagSource, FlagsListenerSettings},
    streaming,
    surface::Endpoint,
    validate_api,
};

/// The description of the API for tools (OpenAPI 3.1).
const OPENAPI: &[u8] = include_bytes!("../openapi.json");

/// The page that shows it.
const OPENAPI_PAGE: &[u8] = include_bytes!("../openapi.html");

/// Serves the requests of a listener, on all workers.
pub(crate) struct FlagsHandler {
    pub(crate) edge: Arc<Edge>,
    pub(crate) settings: FlagsListenerSettings,
}

impl fmt::Debug for FlagsHandler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FlagsHandler").field(&self.settings).finish()
    }
}

impl Handler for FlagsHandler {
    fn body_bytes_max(&self) -> usize {
        weir_flags_codec::limits::METRICS_BODY_BYTES_MAX
    }

    fn refuse(&self, head: &RequestHead) -> Option<WholeResponse> {
        let (path, _) = parts(head);
        let endpoint = self.endpoint(path);
        let refused = match &endpoint {
            None => Some(reply::empty(404)),
            Some(endpoint) if !endpoint.methods().take(head.method()) => Some(wrong_method(endpoint)),
            Some(endpoint) => {
                let api = endpoint.api()?;
                let token = self.token(endpoint, &head.fields);
                let is_denied = token.is_none_or(|token| is_denied(&self.edge.view(), token, api));
                is_denied.then(|| Denial::Forbidden.response())
            }
        }?;
        self.edge.counts.responded(number(endpoint.as_ref()), refused.status);
        Some(refused)
    }

    fn handle(self: Arc<Self>, request: HandlerRequest) -> Pin<Box<dyn Future<Output = HandlerResponse>>> {
        Box::pin(async move {
            let (path, query) = parts(&request.head);
            let endpoint = self.endpoint(path);
            let number = number(endpoint.as_ref());
            let response = match endpoint {
                None => HandlerResponse::Whole(reply::empty(404)),
                Some(endpoint) if !endpoint.methods().take(request.head.method()) => {
                    HandlerResponse::Whole(wrong_method(&endpoint))
                }
                Some(endpoint) => self.respond(&request, endpoint, query).await,
            };
            let status = match &response {
                HandlerResponse::Whole(whole) => whole.status,
                HandlerResponse::Stream { status, .. } => *status,
            };
            self.edge.counts.responded(number, status);
            response
        })
    }
}

/// Path and query.
fn parts(head: &RequestHead) -> (&str, &str) {
    let target = std::str::from_utf8(head.target()).unwrap_or_default();
    target.split_once('?').unwrap_or((target, ""))
}

/// The number of an endpoint in counts.
fn number(endpoint: Option<&Endpoint<'_>>) -> usize {
    endpoint.map_or(Endpoint::NAMES.len() - 1, Endpoint::number)
}

fn wrong_method(endpoint: &Endpoint<'_>) -> WholeResponse {
    let mut response = reply::empty(405);
    response.fields.add(Known::Allow, endpoint.methods().allow().as_bytes());
    response
}

impl FlagsHandler {
    /// The endpoint of a path, if an operator has left it on.
    fn endpoint<'a>(&self, path: &'a str) -> Option<Endpoint<'a>> {
        Endpoint::of(path, &self.settings.base_path).filter(|endpoint| self.serves(endpoint))
    }

    /// The text of the token of a request.
    fn token<'a>(&self, endpoint: &Endpoint<'_>, fields: &'a Fields) -> Option<&'a str> {
        match endpoint {
            Endpoint::Ofrep | Endpoint::OfrepOne(_) => ofrep::token_of(fields, &self.settings.token_header),
            _ => token_of(fields, &self.settings.token_header),
        }
    }

    /// Whether an operator has left an endpoint on.
    fn serves(&self, endpoint: &Endpoint<'_>) -> bool {
        match endpoint {
            Endpoint::Evaluate(weir_flags_session::Listing::All) => self.settings.all_endpoint,
            Endpoint::Streaming => self.settings.streaming,
            Endpoint::Backstage(backstage) => self.settings.backstage.contains(backstage),
            Endpoint::Ofrep | Endpoint::OfrepOne(_) => self.settings.ofrep,
            _ => true,
        }
    }

    async fn respond(&self, request: &HandlerRequest, endpoint: Endpoint<'_>, query: &str) -> HandlerResponse {
        let served = match endpoint.api() {
            None => Ok(self.respond_to_all(request, &endpoint).await),
            Some(api) => self.respond_to_token(request, endpoint, api, query).await,
        };
        served.unwrap_or_else(|denial| HandlerResponse::Whole(denial.response()))
    }

    /// Endpoints that take no token.
    async fn respond_to_all(&self, request: &HandlerRequest, endpoint: &Endpoint<'_>) -> HandlerResponse {
        HandlerResponse::Whole(match endpoint {
            Endpoint::Validate => {
                validate_api::validate(&self.edge, &request.body, request.caller.client, self.patience()).await
            }
            Endpoint::Backstage(backstage) => backstage::respond(&self.edge, *backstage).await,
            Endpoint::OpenApiPage => reply::page(OPENAPI_PAGE),
            _ => reply::json(200, OPENAPI),
        })
    }

    async fn respond_to_token(
        &self,
        request: &HandlerRequest,
        endpoint: Endpoint<'_>,
        api: Api,
        query: &str,
    ) -> Result<HandlerResponse, Denial> {
        let token = self.token(&endpoint, &request.head.fields);
        let (token, source) = (token.ok_or(Denial::Forbidden)?, request.caller.client);
        let wait = Wait { source, needs_flags: endpoint.needs_flags(), patience: self.patience() };
        let access = access(&self.edge, token, api, wait).await?;
        let (edge, settings) = (&self.edge, &self.settings);
        let is_post = request.head.method() == b"POST";
        let whole: WholeResponse = match endpoint {
            Endpoint::Features => client_api::features(edge, &access, request, query).await?,
            Endpoint::Feature(name) => client_api::feature(&access, request, &name)?,
            Endpoint::Delta => client_api::delta(&access, request, query).await?,
            Endpoint::Streaming => return streaming::stream(edge, access, request, query, settings).await,
            Endpoint::Evaluate(listing) => {
                let context = frontend_api::context(request, query, is_post, settings);
                match context {
                    Ok(context) => frontend_api::evaluate(&access, request, listing, &context).await?,
                    Err(refused) => refused,
                }
            }
            Endpoint::EvaluateOne(name) => match frontend_api::context(request, query, is_post, settings) {
                Ok(context) => frontend_api::evaluate_one(&access, request, &name, &context)?,
                Err(refused) => refused,
            },
            Endpoint::Metrics(_) => metrics_api::metrics(edge, &access, request),
            Endpoint::BulkMetrics => metrics_api::bulk(edge, &access, request),
            Endpoint::EdgeMetrics => metrics_api::edge_instance(edge, request),
            Endpoint::Register(_) => metrics_api::register(edge, &access, request),
            Endpoint::Ofrep => ofrep::evaluate(&access, request).await?,
            Endpoint::OfrepOne(key) => ofrep::evaluate_one(&access, request, &key)?,
            Endpoint::Validate | Endpoint::Backstage(_) | Endpoint::OpenApi | Endpoint::OpenApiPage => {
                reply::empty(404)
            }
        };
        Ok(HandlerResponse::Whole(whole))
    }

    /// How long a request waits for a verdict on its token, and for the first flags.
    fn patience(&self) -> Duration {
        match &self.settings.source {
            FlagSource::Upstream(source) => source.validation_timeout,
            FlagSource::File(_) => Duration::ZERO,
        }
    }
}
