//! The HTTP listener that an AI listener stands on.

use std::{sync::Arc, time::Duration};

use weir_http::{
    routes::{Action, DirectResponse, Routes, Target},
    settings::HttpListenerSettings,
};
use weir_route::{Route, RouteTable, host::HostMatch, path::PathMatch, split::Split};

use crate::{
    error::ErrorForm,
    settings::{AgentProtocol, AiListenerSettings},
};

/// From the head of a request to a server of MCP or an agent of A2A to the end of its response. Default 24 h: the stream of a session
/// lasts as long as its client. The head of the response comes within the deadline of the listener, and pauses have one of their own.
const AGENT_REQUEST_TIMEOUT: Duration = Duration::from_secs(86_400);

/// The action of requests to servers of MCP and agents of A2A.
fn agents() -> Action {
    let mut action = Action::plain(Split::new(vec![(0, None)]).map_or(Target::Invalid, Target::Upstream));
    action.request_buffer_bytes = Some(0);
    action.request_timeout = Some(AGENT_REQUEST_TIMEOUT);
    action
}

/// The settings of the HTTP listener. Its filter decides on everything but the probe.
pub(crate) fn settings(own: &AiListenerSettings) -> HttpListenerSettings {
    let target = Split::new(vec![(0, None)]).map_or(Target::Invalid, Target::Upstream);
    let mut all = Action::plain(target);
    // The filter buffers as much as it needs; uploads that it does not look into pass.
    all.request_buffer_bytes = Some(0);
    let ok =
        DirectResponse { status: 200, content_type: "application/json".into(), body: b"{\"status\":\"ok\"}".to_vec() };
    let health = Action::plain(Target::Response(Arc::new(ok)));
    let mut routes = vec![
        Route::new("health", HostMatch::Any, PathMatch::Exact("/health".into()), health),
        Route::new("ai", HostMatch::Any, PathMatch::Segments("/".into()), all),
    ];
    for protocol in [AgentProtocol::Mcp, AgentProtocol::A2a] {
        let path = PathMatch::Segments(format!("/{}", protocol.name()).into());
        routes.push(Route::new(protocol.name(), HostMatch::Any, path, agents()));
    }
    let routes = Routes {
        table: RouteTable::new(routes),
        upstreams: own.upstreams.clone(),
        identity_fields: Vec::new(),
        names: Vec::new(),
    };
    HttpListenerSettings {
        refusal_format: Some(Arc::new(ErrorForm::OpenAi)),
        // A response that is no stream has its head when the model is done.
        response_timeout: own.request_timeout,
        // It bounds the upload, too.
        request_timeout: Some(own.request_timeout),
        request_id: true,
        // A content type must not get a request past its key.
        grpc_calls: false,
        ..HttpListenerSettings::new(Arc::new(routes))
    }
}
